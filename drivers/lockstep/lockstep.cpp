// Lock-step: every allocation, copy and command goes to a device and to a reference; after each command what it wrote
// is compared, and the first difference fails the command, with a text that says where.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "support/driver/json_text.h"
#include "support/loading/driver_table.h"
#include "support/loading/spec.h"
#include "support/verify/element.h"
#include "support/verify/reproduction.h"
#include "support/verify/wrapper.h"

namespace npu {

const char* const wrapper_name = "lockstep";

namespace {

constexpr const char* kOptions =
    "device=[DRIVER], reference=[DRIVER] or reference=isa, exact=yes|split|no, functions=NUMBER, sums=NUMBER, "
    "out=FOLDER";

class Lockstep : public Watcher {
 public:
  explicit Lockstep(const std::string& options) {
    std::string device, reference = "cmodel:mode=exact";
    for (const auto& [key, value] : parse_options(options)) {
      if (key == "device")
        device = value;
      else if (key == "reference")
        reference = value;
      else if (key == "exact" && (value == "yes" || value == "no" || value == "split"))
        budget_.exact = value == "yes" ? Exact::kYes : value == "no" ? Exact::kNo : Exact::kSplit;
      else if ((key == "functions" || key == "sums") && number(value) >= 0)
        (key == "functions" ? budget_.functions : budget_.sums) = number(value);
      else if (key == "out")
        folder_ = value;
      else
        throw std::invalid_argument("lockstep: expected options " + std::string(kOptions) + ", got \"" + key + "=" +
                                    value + "\"");
    }
    if (device.empty())
      throw std::invalid_argument("lockstep: expected the option device=[DRIVER], got \"" + options + "\"");
    sides = {device};
    if (reference != "isa") sides.push_back(reference);
    reference_ = reference;
  }

  Outcome run(Launch& launch) override {
    const npu_command& command = *launch.command;
    const char* label = command.label ? command.label : command_name(command.kind);
    const Outcome device = submit_to(launch, 0, command);
    std::lock_guard guard(lock_);
    if (device.status == NPU_UNSUPPORTED) {
      ++refused_[label];
      return device;
    }
    if (device.status == NPU_ERROR_MEMORY) return device;
    std::vector<Written> written;
    for (const Region& region : launch.regions)
      if (region.write)
        written.push_back({region, std::vector<std::byte>(region.size), std::vector<std::byte>(region.size)});
    const Outcome reference = expect(launch, written);
    // A device that hangs or is lost has nothing to compare.
    if (is_broken(device.status)) {
      if (!is_broken(reference.status)) statuses_differ(launch, written, device, reference);
      return device;
    }
    for (Written& one : written) {
      const Outcome outcome = read_side(*launch.stream, 0, one.region.addr, one.got.data(), one.region.size);
      if (outcome.status != NPU_OK) return outcome;
    }
    ++commands_;
    if (device.status != reference.status) return statuses_differ(launch, written, device, reference);
    Verdict verdict;
    if (device.status == NPU_OK) {
      verdict = judge(command, launch.program, launch.mirror(), written, budget_);
      for (const Written& one : written) bytes_ += one.region.size;
    }
    Outcome outcome = device;
    if (verdict.differing)
      outcome = differs(launch, written, verdict);
    else if (const std::string stray = stray_write(launch, written); device.status == NPU_OK && !stray.empty())
      outcome = conclude(launch, written, verdict, stray);
    if (verdict.same_bits) ++same_bits_;
    if (!verdict.differing && verdict.tolerated) ++within_;
    used_ = std::max(used_, verdict.used);
    if (const Outcome problem = adopt(launch, written, device.status != NPU_OK || !verdict.same_bits);
        problem.status != NPU_OK)
      return problem;
    return outcome;
  }

  Outcome was_read(npu_device& device, npu_addr addr, const std::byte* data, uint64_t size) override {
    const std::byte* want = device.mirror.find(addr, size);
    if (!want || std::memcmp(want, data, size) == 0) return {};
    std::lock_guard guard(lock_);
    uint64_t first = 0, count = 0;
    for (uint64_t i = size; i-- > 0;)
      if (want[i] != data[i]) first = i, ++count;
    const std::string text = "lockstep: " + std::to_string(count) + " of " + std::to_string(size) +
                             " bytes that the host read at " + hex_text(addr) + " differ, first byte " +
                             std::to_string(first) + ": expected " + hex_text(std::to_integer<uint64_t>(want[first])) +
                             ", got " + hex_text(std::to_integer<uint64_t>(data[first])) +
                             ": a copy is wrong, or a command wrote outside its results";
    if (++differences_ == 1)
      difference_ = "{\"kind\": \"copy\", \"op\": \"copy_to_host\", \"command\": " + std::to_string(device.commands) +
                    ", \"text\": " + json_text(text) + ", \"reproduction\": \"\", \"elements\": []}";
    return {NPU_ERROR_INTERNAL, text};
  }

  std::string report() override {
    std::lock_guard guard(lock_);
    char used[32];
    std::snprintf(used, sizeof used, "%.4g", used_);
    std::string out = "{\"device\": " + json_text(sides[0]) + ", \"reference\": " + json_text(reference_) +
                      ", \"commands\": " + std::to_string(commands_) + ", \"bytes\": " + std::to_string(bytes_) +
                      ", \"same_bits\": " + std::to_string(same_bits_) +
                      ", \"within_budget\": " + std::to_string(within_) + ", \"budget_used\": " + used +
                      ", \"by_isa\": " + std::to_string(by_isa_) +
                      ", \"differences\": " + std::to_string(differences_) + ", \"refused\": {";
    bool first = true;
    for (const auto& [label, count] : refused_) {
      out += (first ? "" : ", ") + json_text(label) + ": " + std::to_string(count);
      first = false;
    }
    return out + "}, \"difference\": " + (difference_.empty() ? "null" : difference_) + "}";
  }

  void restart() override {
    std::lock_guard guard(lock_);
    commands_ = bytes_ = same_bits_ = within_ = by_isa_ = differences_ = 0;
    used_ = 0;
    refused_.clear();
    difference_.clear();
  }

 private:
  static bool is_broken(npu_status status) { return static_cast<uint32_t>(status) > NPU_ERROR_INDEX; }

  static double number(const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    return text.empty() || *end || !std::isfinite(value) ? -1 : value;
  }

  // What the reference makes of the command. One that it does not have, docs/isa.md itself computes.
  Outcome expect(Launch& launch, std::vector<Written>& written) {
    Outcome outcome{NPU_UNSUPPORTED, ""};
    if (sides.size() > 1) outcome = submit_to(launch, 1, *launch.command);
    if (outcome.status != NPU_UNSUPPORTED) {
      for (Written& one : written) {
        const Outcome read = read_side(*launch.stream, 1, one.region.addr, one.want.data(), one.region.size);
        if (read.status != NPU_OK) return read;
      }
      return outcome;
    }
    ++by_isa_;
    Scratch scratch(launch.mirror(), launch.regions);
    outcome.status = scratch.run(*launch.command, launch.program, &outcome.text);
    for (Written& one : written)
      if (const std::byte* bytes = scratch.find(one.region.addr, one.region.size))
        std::memcpy(one.want.data(), bytes, one.region.size);
    if (sides.size() > 1)
      for (const Written& one : written) {
        const Outcome wrote = write_side(*launch.stream, 1, one.region.addr, one.want.data(), one.region.size);
        if (wrote.status != NPU_OK) return wrote;
      }
    return outcome;
  }

  // The run goes on with the device's results, on both sides: every command is judged alone, on equal inputs.
  Outcome adopt(Launch& launch, const std::vector<Written>& written, bool to_reference) {
    for (const Written& one : written) {
      if (std::byte* bytes = launch.mirror().find(one.region.addr, one.region.size))
        std::memcpy(bytes, one.got.data(), one.region.size);
      if (!to_reference || sides.size() < 2) continue;
      const Outcome wrote = write_side(*launch.stream, 1, one.region.addr, one.got.data(), one.region.size);
      if (wrote.status != NPU_OK) return wrote;
    }
    return {};
  }

  Outcome statuses_differ(Launch& launch, const std::vector<Written>& written, const Outcome& device,
                          const Outcome& reference) {
    const auto said = [](const Outcome& one) {
      return std::string(status_name(one.status)) + (one.status == NPU_OK ? "" : " (" + one.text + ")");
    };
    std::string what = "expected " + said(reference) + ", got " + said(device);
    if (reference.status == NPU_OK || device.status == NPU_OK)
      what += device.status == NPU_OK ? ": only the reference fails" : ": only the device fails";
    const Outcome outcome = conclude(launch, written, {}, what);
    if (is_broken(device.status)) return outcome;
    const Outcome problem = adopt(launch, written, true);
    return problem.status == NPU_OK ? outcome : problem;
  }

  Outcome differs(Launch& launch, const std::vector<Written>& written, const Verdict& verdict) {
    const Region& region = written[verdict.written].region;
    const int dtype = region.dtype;
    std::string text = std::to_string(verdict.differing) + " of " +
                       std::to_string(region.size / static_cast<uint64_t>(dtype_size(dtype))) +
                       " elements differ, first in operand " + std::to_string(region.operand) + " (" +
                       dtype_name(dtype) + "): ";
    for (size_t i = 0; i < verdict.first.size() && i < 3; ++i) {
      const Element& one = verdict.first[i];
      text += (i ? "; " : "") + one.place + ": expected " + element_text(one.want, dtype) + ", got " +
              element_text(one.got, dtype);
    }
    text += "; allowed: " + verdict.allowed;
    if (const std::string earlier = changed_input(launch); !earlier.empty()) text += "; " + earlier;
    return conclude(launch, written, verdict, text);
  }

  // The bytes around a result must be as they were. Farther away a stray write is found when it is read.
  std::string stray_write(Launch& launch, const std::vector<Written>& written) {
    constexpr uint64_t kMargin = 256;
    for (const Written& one : written) {
      const Region& region = one.region;
      const Extent block = launch.mirror().allocation(region.addr);
      const npu_addr end = region.addr + region.size, stop = block.addr + block.size;
      for (const Extent& side : {Extent{std::max(block.addr, region.addr - std::min(region.addr, kMargin)), 0},
                                 Extent{end, std::min(kMargin, stop - end)}}) {
        const uint64_t size = side.addr < region.addr ? region.addr - side.addr : side.size;
        std::byte now[kMargin];
        const std::byte* want = launch.mirror().find(side.addr, size);
        if (size == 0 || !want || read_side(*launch.stream, 0, side.addr, now, size).status != NPU_OK) continue;
        for (uint64_t i = 0; i < size; ++i)
          if (now[i] != want[i] && !is_written(written, side.addr + i)) {
            write_side(*launch.stream, 0, side.addr + i, want + i, 1);
            return "the byte at " + hex_text(side.addr + i) + ", which is not part of operand " +
                   std::to_string(region.operand) + " or any other result, was changed";
          }
      }
    }
    return "";
  }

  static bool is_written(const std::vector<Written>& written, npu_addr addr) {
    for (const Written& one : written)
      if (addr >= one.region.addr && addr - one.region.addr < one.region.size) return true;
    return false;
  }

  // An input that the device holds differently was changed by an earlier command, outside its results.
  std::string changed_input(Launch& launch) {
    for (const Region& region : launch.regions) {
      bool overwritten = false;
      for (const Region& other : launch.regions)
        overwritten |= other.write && other.addr < region.addr + region.size && region.addr < other.addr + other.size;
      if (overwritten) continue;
      std::vector<std::byte> now(region.size);
      const std::byte* want = launch.mirror().find(region.addr, region.size);
      if (want && read_side(*launch.stream, 0, region.addr, now.data(), region.size).status == NPU_OK &&
          std::memcmp(want, now.data(), region.size) != 0)
        return "its operand " + std::to_string(region.operand) +
               " was changed on the device by an earlier command that wrote outside its results";
    }
    return "";
  }

  Outcome conclude(Launch& launch, const std::vector<Written>& written, const Verdict& verdict, std::string what) {
    const npu_command& command = *launch.command;
    const std::string program = launch.program && launch.program->name ? launch.program->name : "";
    std::string text = "lockstep: command " + std::to_string(launch.number) + ", " + command_text(command) +
                       (program.empty() ? "" : ", program '" + program + "'") + ": " + what;
    if (++differences_ > 1) return {NPU_ERROR_INTERNAL, text};
    std::string path = folder_ + "/" + reproduction_name("difference", command, launch.number);
    try {
      const std::string info = "{\"made_by\": \"lockstep\", \"device\": " + json_text(sides[0]) +
                               ", \"reference\": " + json_text(reference_) + ", \"difference\": " + json_text(what) +
                               "}";
      write_reproduction(path, info, command, launch.program, launch.mirror(), launch.regions, written, launch.number);
      text += "; reproduction: " + path;
    } catch (const std::exception& problem) {
      text += std::string("; no reproduction: ") + problem.what();
      path.clear();
    }
    difference_ = "{\"kind\": " + json_text(command_name(command.kind)) +
                  ", \"op\": " + json_text(command.label ? command.label : "") +
                  ", \"command\": " + std::to_string(launch.number) + ", \"program\": " + json_text(program) +
                  ", \"what\": " + json_text(command_text(command)) +
                  ", \"differing\": " + std::to_string(verdict.differing) +
                  ", \"allowed\": " + json_text(verdict.allowed) + ", \"reproduction\": " + json_text(path) +
                  ", \"text\": " + json_text(text) + ", \"elements\": [";
    for (size_t i = 0; i < verdict.first.size(); ++i) {
      const Element& one = verdict.first[i];
      const int dtype = written[verdict.written].region.dtype;
      difference_ +=
          std::string(i ? ", " : "") + "{\"operand\": " + std::to_string(written[verdict.written].region.operand) +
          ", \"place\": " + json_text(one.place) + ", \"expected\": " + json_text(element_text(one.want, dtype)) +
          ", \"got\": " + json_text(element_text(one.got, dtype)) + "}";
    }
    difference_ += "]}";
    return {NPU_ERROR_INTERNAL, text};
  }

  std::mutex lock_;  // guards all below: devices of one instance share it
  Budget budget_;
  std::string reference_, folder_ = ".";
  uint64_t commands_ = 0, bytes_ = 0, same_bits_ = 0, within_ = 0, by_isa_ = 0, differences_ = 0;
  double used_ = 0;
  std::map<std::string, uint64_t> refused_;
  std::string difference_;
};

}  // namespace

std::unique_ptr<Watcher> make_watcher(const std::string& options) {
  return std::make_unique<Lockstep>(options);
}

}  // namespace npu
