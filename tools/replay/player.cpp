#include "tools/replay/player.h"

#include <algorithm>
#include <cstring>

#include "support/driver/json_text.h"
#include "support/loading/driver_table.h"
#include "support/verify/element.h"
#include "support/verify/reproduction.h"

namespace replay {

using namespace npu;

Player::Player(const Trace& trace, const std::string& driver, uint32_t device, Budget budget)
    : trace_(trace), budget_(budget), driver_(open_driver(driver)) {
  if (device >= driver_.devices)
    throw Problem{"expected a device below " + std::to_string(driver_.devices) + ", got " + std::to_string(device)};
  check(driver_.api->device_open(driver_.instance, device, &device_), "opening the device");
  check(driver_.api->stream_create(device_, 0, &stream_), "making a stream");
}

Player::~Player() {
  legaliser_.reset();
  for (npu_event* event : events_)
    if (event) driver_.api->event_destroy(event);
  for (const auto& [number, program] : made_)
    if (program) driver_.api->program_destroy(program);
  if (stream_) driver_.api->stream_destroy(stream_);
  if (device_) driver_.api->device_close(device_);
  driver_.api->close(driver_.instance);
}

void Player::check(npu_status status, const std::string& doing) const {
  if (status != NPU_OK)
    throw Problem{driver_.spec + ": " + doing + " failed: " + driver_.api->error_text() + " (" + status_name(status) +
                  ")"};
}

void Player::need(npu_addr addr, uint64_t size) {
  if (!memory_.find(addr, size))
    throw Problem{"expected " + std::to_string(size) + " bytes of the recording's memory at " + hex_text(addr) +
                  ", got none: the recording is damaged"};
}

// The recorder gives out memory of zeros.
void Player::prepare(npu_addr addr, uint64_t size) {
  for (const Extent& part : memory_.fresh(addr, size)) {
    const std::vector<std::byte> zeros(part.size);
    check(driver_.api->copy_to_device(stream_, memory_.on(1, part.addr), zeros.data(), part.size, 0),
          "clearing memory");
  }
}

void Player::alloc(const TraceEntry& entry) {
  npu_addr made = 0;
  const npu_status status = driver_.api->memory_alloc(device_, entry.size, &made);
  uint64_t free_bytes = 0, total = 0;
  if (status == NPU_ERROR_MEMORY && driver_.api->memory_info(device_, &free_bytes, &total) == NPU_OK)
    throw Problem{driver_.spec + ": expected " + std::to_string(entry.size) +
                  " bytes of device memory for the recording, got " + std::to_string(free_bytes) + " free of " +
                  std::to_string(total)};
  check(status, "allocating memory");
  memory_.add({entry.addr, made}, entry.size);
}

void Player::upload(npu_addr addr, const void* data, uint64_t size) {
  check(driver_.api->copy_to_device(stream_, memory_.on(1, addr), data, size, 0), "copying to the device");
}

void Player::download(npu_addr addr, void* data, uint64_t size) {
  check(driver_.api->copy_to_host(stream_, data, memory_.on(1, addr), size, 0), "copying from the device");
}

std::vector<Region> Player::regions(const npu_command& command, const npu_program_desc* program) {
  return footprint(command, program, [&](npu_addr addr) { return memory_.allocation(addr); });
}

std::string Player::play(uint64_t until, const std::function<void(const TraceEntry&)>& each) {
  for (const TraceEntry& entry : trace_.entries) {
    if (entry.kind == Entry::kCommand) {
      if (until && entry.command.number == until) {
        stopped_ = &entry;
        return "";
      }
      each(entry);
    }
    if (std::string difference = step(entry); !difference.empty()) return difference;
  }
  return "";
}

std::string Player::step(const TraceEntry& entry) {
  switch (entry.kind) {
    case Entry::kAlloc:
      alloc(entry);
      break;
    case Entry::kFree: {
      const std::vector<npu_addr> sides = memory_.sides(entry.addr);
      if (sides.empty())
        throw Problem{"expected live memory at " + hex_text(entry.addr) + ": the recording is damaged"};
      check(driver_.api->memory_free(device_, sides[1]), "freeing memory");
      memory_.remove(entry.addr);
      break;
    }
    case Entry::kWrite:
      need(entry.addr, entry.size);
      prepare(entry.addr, entry.size);
      upload(entry.addr, entry.data.data(), entry.size);
      std::memcpy(memory_.find(entry.addr, entry.size), entry.data.data(), entry.size);
      break;
    case Entry::kCopy:
      need(entry.addr, entry.size);
      need(entry.from, entry.size);
      prepare(entry.addr, entry.size);
      prepare(entry.from, entry.size);
      check(driver_.api->copy_on_device(stream_, memory_.on(1, entry.addr), memory_.on(1, entry.from), entry.size),
            "copying on the device");
      std::memmove(memory_.find(entry.addr, entry.size), memory_.find(entry.from, entry.size), entry.size);
      break;
    case Entry::kRead: {
      need(entry.addr, entry.size);
      prepare(entry.addr, entry.size);
      std::vector<std::byte> now(entry.size);
      download(entry.addr, now.data(), entry.size);
      ++counts_.reads;
      // What the host reads was compared when it was written, and a budget may have been used.
      if (std::memcmp(now.data(), memory_.find(entry.addr, entry.size), entry.size) != 0)
        return "the host reads " + std::to_string(entry.size) + " bytes at " + hex_text(entry.addr) +
               " that differ from what was written: a copy is wrong, or a command wrote outside its results";
      break;
    }
    case Entry::kProgram:
      programs_[entry.number] = &entry.program;
      break;
    case Entry::kCommand:
      return run(entry);
    default:
      break;
  }
  return "";
}

void Player::time(const TraceEntry& entry) {
  const npu_command command = entry.command.borrow();
  npu_program_desc desc{};
  if (entry.command.program) desc = programs_.at(entry.command.program)->desc();
  const std::vector<Region> touched = regions(command, entry.command.program ? &desc : nullptr);
  for (const Region& region : touched) prepare(region.addr, region.size);
  const npu_status status = submit(entry, command);
  if (status != NPU_OK && status != NPU_UNSUPPORTED) answer_.kind = Answer::kRefused;
  for (const Region& region : touched)
    if (region.write) upload(region.addr, memory_.find(region.addr, region.size), region.size);
}

void Player::legalise() {
  scratch_ = std::make_unique<legalise::StreamMemory>(*driver_.api, device_);
  const auto find = [this](const npu_program* handle) -> std::shared_ptr<const Program> {
    for (const auto& [number, program] : made_)
      if (program == handle) return {std::shared_ptr<void>(), programs_.at(number)};
    return nullptr;
  };
  const auto tell = [this](const legalise::Decision& decision) { answer_.decision = decision; };
  legaliser_ = std::make_unique<legalise::Legaliser>(*driver_.api, device_, *scratch_, find, tell);
}

npu_status Player::submit(const TraceEntry& entry, const npu_command& command) {
  npu_command here = command;
  std::vector<npu_operand> operands = entry.command.operands;
  for (npu_operand& operand : operands)
    if (!(operand.flags & NPU_OPERAND_IMMEDIATE)) operand.addr = memory_.on(1, operand.addr);
  here.operands = operands.data();
  answer_ = {};
  const npu_driver& api = *driver_.api;
  for (npu_event*& event : events_)
    if (!event) check(api.event_create(device_, NPU_EVENT_TIMING, &event), "making an event");
  check(api.event_record(events_[0], stream_), "recording an event");
  npu_status status = give(entry, here);
  if (status == NPU_UNSUPPORTED && legaliser_) {
    answer_.words = api.error_text();
    status = give_legalised(entry, here);
    if (status == NPU_OK) answer_.kind = Answer::kLegalised;
  } else if (status == NPU_OK) {
    answer_.kind = Answer::kNative;
  } else {
    answer_.words = api.error_text();
  }
  if (status != NPU_OK) return status;
  check(api.event_record(events_[1], stream_), "recording an event");
  status = api.stream_synchronize(stream_);
  if (status == NPU_OK && api.event_elapsed(events_[0], events_[1], &answer_.milliseconds) != NPU_OK)
    answer_.milliseconds = 0;
  return status;
}

npu_status Player::give(const TraceEntry& entry, npu_command command) {
  if (entry.command.program) {
    auto [found, added] = made_.try_emplace(entry.command.program, nullptr);
    if (added) {
      const npu_program_desc desc = programs_.at(entry.command.program)->desc();
      const npu_status status = driver_.api->program_create(device_, &desc, &found->second);
      if (status != NPU_UNSUPPORTED) check(status, "making a program");
      if (status != NPU_OK) found->second = nullptr;  // whatever the driver left there
    }
    if (!found->second) return NPU_UNSUPPORTED;
    command.program = found->second;
  }
  return driver_.api->submit(stream_, &command);
}

npu_status Player::give_legalised(const TraceEntry& entry, npu_command command) {
  if (!entry.command.program) return legaliser_->submit(stream_, command);
  command.program = made_.at(entry.command.program);
  if (command.program) return legaliser_->submit(stream_, command);
  const npu_program_desc desc = programs_.at(entry.command.program)->desc();
  check(legaliser_->program_create(desc, &command.program), "keeping a refused program");
  const npu_status status = legaliser_->submit(stream_, command);
  legalise::Legaliser::program_destroy(legalise::refused_program(command.program));
  return status;
}

std::string Player::run(const TraceEntry& entry) {
  const npu_command command = entry.command.borrow();
  npu_program_desc desc{};
  if (entry.command.program) desc = programs_.at(entry.command.program)->desc();
  const npu_program_desc* program = entry.command.program ? &desc : nullptr;
  for (const Region& region : regions(command, program)) prepare(region.addr, region.size);
  for (const Result& result : entry.results) need(result.addr, result.size);
  const npu_status status = submit(entry, command);
  if (status == NPU_UNSUPPORTED) {
    refused(entry, command, program);
    return "";
  }
  ++counts_.commands;
  if (status != NPU_OK)
    return "command " + std::to_string(entry.command.number) + ", " + command_text(command) +
           ": expected success, got " + status_name(status) + ": " + driver_.api->error_text();
  return compare(entry, command, program);
}

// The results of a command that the driver does not have come from the recording, or from docs/isa.md.
void Player::refused(const TraceEntry& entry, const npu_command& command, const npu_program_desc* program) {
  ++counts_.refused;
  Scratch scratch(memory_, regions(command, program));
  const bool recorded =
      std::all_of(entry.results.begin(), entry.results.end(), [](const Result& r) { return r.has_data; });
  std::string why;
  if (!recorded && scratch.run(command, program, &why) != NPU_OK)
    throw Problem{"expected docs/isa.md to run " + command_text(command) + ", got: " + why};
  for (const Result& result : entry.results) {
    const std::byte* bytes = recorded ? result.data.data() : scratch.find(result.addr, result.size);
    upload(result.addr, bytes, result.size);
    std::memcpy(memory_.find(result.addr, result.size), bytes, result.size);
  }
}

std::string Player::compare(const TraceEntry& entry, const npu_command& command, const npu_program_desc* program) {
  std::vector<Written> written;
  std::string difference;
  const std::string name = "command " + std::to_string(entry.command.number) + ", " + command_text(command) + ": ";
  bool same = true;
  for (const Result& result : entry.results) {
    Region region{result.operand, command.operands[result.operand].dtype, result.addr, result.size, false, true};
    Written one{region, result.data, std::vector<std::byte>(result.size)};
    download(result.addr, one.got.data(), result.size);
    counts_.bytes += result.size;
    if (!result.has_data) {
      same &= crc32(one.got.data(), one.got.size()) == result.crc;
      if (!same && difference.empty())
        difference = name + "the checksum of operand " + std::to_string(result.operand) +
                     " differs from the recorded one (record with results=data to see elements and to use a budget)";
      one.want = one.got;
    }
    written.push_back(std::move(one));
  }
  const Verdict verdict = judge(command, program, memory_, written, budget_);
  counts_.same_bits += verdict.same_bits && same;
  counts_.within_budget += !verdict.differing && verdict.tolerated;
  counts_.used = std::max(counts_.used, verdict.used);
  if (verdict.differing) {
    const Region& region = written[verdict.written].region;
    difference = name + std::to_string(verdict.differing) + " of " +
                 std::to_string(region.size / static_cast<uint64_t>(dtype_size(region.dtype))) +
                 " elements differ, first in operand " + std::to_string(region.operand) + " (" +
                 dtype_name(region.dtype) + ")";
    for (const Element& one : verdict.first)
      difference += "\n  " + one.place + ": expected " + element_text(one.want, region.dtype) + ", got " +
                    element_text(one.got, region.dtype);
    difference += "\n  allowed: " + verdict.allowed;
  }
  // The recorded results go on, so that every command is judged alone, on the inputs it was recorded with.
  for (const Written& one : written) {
    if (!verdict.same_bits) upload(one.region.addr, one.want.data(), one.region.size);
    std::memcpy(memory_.find(one.region.addr, one.region.size), one.want.data(), one.region.size);
  }
  return difference;
}

void Player::extract(const std::string& path) {
  if (!stopped_) throw Problem{"no command has this number; --list prints them"};
  const TraceEntry& entry = *stopped_;
  const npu_command command = entry.command.borrow();
  npu_program_desc desc{};
  if (entry.command.program) desc = programs_.at(entry.command.program)->desc();
  const npu_program_desc* program = entry.command.program ? &desc : nullptr;
  const std::vector<Region> touched = regions(command, program);
  Scratch scratch(memory_, touched);
  const bool recorded =
      std::all_of(entry.results.begin(), entry.results.end(), [](const Result& r) { return r.has_data; });
  std::string why;
  if (!recorded && scratch.run(command, program, &why) != NPU_OK)
    throw Problem{"expected docs/isa.md to run " + command_text(command) + ", got: " + why};
  std::vector<Written> written;
  for (const Result& result : entry.results) {
    need(result.addr, result.size);
    Written one{{result.operand, command.operands[result.operand].dtype, result.addr, result.size, false, true},
                result.data,
                {}};
    if (!recorded) {
      const std::byte* bytes = scratch.find(result.addr, result.size);
      one.want.assign(bytes, bytes + result.size);
    }
    written.push_back(std::move(one));
  }
  write_reproduction(path, "{\"made_by\": \"npu-replay\", \"from\": " + json_text(trace_.path) + "}", command, program,
                     memory_, touched, written, entry.command.number);
}

}  // namespace replay
