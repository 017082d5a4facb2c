// Recording: wraps one driver and writes what it was given, and what it answered, to a file that npu-replay reads.
#include <cstring>
#include <stdexcept>

#include "support/driver/json_text.h"
#include "support/legalise/legaliser.h"
#include "support/loading/spec.h"
#include "support/verify/element.h"
#include "support/verify/reproduction.h"
#include "support/verify/trace.h"
#include "support/verify/wrapper.h"

namespace npu {

const char* const wrapper_name = "record";

namespace {

constexpr const char* kOptions = "driver=[DRIVER], file=PATH, results=data|crc, keep=all|examples";

class Recorder;
std::mutex open_lock;
std::set<Recorder*> open_recorders;  // finished when the library is unloaded: the host may never close its drivers

class Recorder : public Watcher {
 public:
  explicit Recorder(const std::string& options) {
    std::string driver = "cmodel";
    for (const auto& [key, value] : parse_options(options)) {
      if (key == "driver")
        driver = value;
      else if (key == "file")
        file_ = value;
      else if (key == "results" && (value == "data" || value == "crc"))
        with_data_ = value == "data";
      else if (key == "keep" && (value == "all" || value == "examples"))
        examples_ = value == "examples";
      else
        throw std::invalid_argument("record: expected options " + std::string(kOptions) + ", got \"" + key + "=" +
                                    value + "\"");
    }
    if (file_.empty()) throw std::invalid_argument("record: expected the option file=PATH, got \"" + options + "\"");
    sides = {driver};
    writer(0);  // a path that cannot be written is found at once
    std::lock_guard guard(open_lock);
    open_recorders.insert(this);
  }
  ~Recorder() override {
    std::lock_guard guard(open_lock);
    open_recorders.erase(this);
  }

  void finish() {
    std::lock_guard guard(lock_);
    for (auto& [index, device] : devices_) {
      try {
        device.writer->finish();
      } catch (const std::exception& problem) {
        std::fprintf(stderr, "%s\n", problem.what());
      }
    }
    finished_ = true;
  }

  Outcome run(Launch& launch) override {
    TraceWriter* const out = examples_ ? nullptr : begin(launch);
    const Outcome outcome = submit_to(launch, 0, *launch.command);
    std::lock_guard guard(lock_);
    if (outcome.status == NPU_UNSUPPORTED) ++refused_[label_of(launch)];
    if (out && outcome.status != NPU_OK) out->drop_command();
    std::vector<Written> written;
    for (const Region& region : launch.regions) {
      if (!region.write || outcome.status == NPU_UNSUPPORTED) continue;
      written.push_back({region, std::vector<std::byte>(region.size), {}});
      const Outcome read = read_side(*launch.stream, 0, region.addr, written.back().want.data(), region.size);
      if (read.status != NPU_OK) return read;
    }
    if (examples_ && outcome.status == NPU_OK) keep_example(launch, written);
    for (const auto& [region, now, unused] : written) {
      if (std::byte* bytes = launch.mirror().find(region.addr, region.size))
        std::memcpy(bytes, now.data(), region.size);
      if (out && outcome.status == NPU_OK)
        out->result(region.operand, region.addr, now.data(), region.size, with_data_);
      else if (out)  // what a failed command wrote is undefined; the recording takes it as written by the host
        out->write(region.addr, now.data(), region.size);
    }
    return outcome;
  }

  void allocated(npu_device& device, npu_addr addr, uint64_t size) override {
    write(device, [&](TraceWriter& out) { out.alloc(addr, size); });
  }
  void freed(npu_device& device, npu_addr addr) override {
    write(device, [&](TraceWriter& out) { out.free(addr); });
  }
  void wrote(npu_device& device, npu_addr addr, const void* data, uint64_t size) override {
    write(device, [&](TraceWriter& out) { out.write(addr, data, size); });
  }
  void copied(npu_device& device, npu_addr to, npu_addr from, uint64_t size) override {
    write(device, [&](TraceWriter& out) { out.copy(to, from, size); });
  }
  Outcome was_read(npu_device& device, npu_addr addr, const std::byte* data, uint64_t size) override {
    write(device, [&](TraceWriter& out) { out.read(addr, data, size); });
    return {};
  }
  void closed(npu_device&) override { finish(); }

  // Asked at the end of a script: the files are finished, and what comes later is not recorded.
  std::string report() override {
    finish();
    std::string out = "{\"driver\": " + json_text(sides[0]) + ", \"files\": [";
    for (const auto& [index, device] : devices_)
      out += (index ? ", " : "") + ("{\"file\": " + json_text(device.writer->path()) +
                                    ", \"commands\": " + std::to_string(device.writer->commands()) +
                                    ", \"bytes\": " + std::to_string(device.writer->bytes()) + "}");
    out += "], \"examples\": [";
    for (bool first = true; const auto& [signature, example] : kept_) {
      out += std::string(first ? "" : ", ") + "{\"number\": " + std::to_string(example.number) + ", \"ops\": {";
      for (bool first_op = true; const auto& [op, count] : example.ops) {
        out += (first_op ? "" : ", ") + json_text(op) + ": " + std::to_string(count);
        first_op = false;
      }
      out += "}}";
      first = false;
    }
    out += "], \"refused\": {";
    bool first = true;
    for (const auto& [label, count] : refused_) {
      out += (first ? "" : ", ") + json_text(label) + ": " + std::to_string(count);
      first = false;
    }
    return out + "}}";
  }

 private:
  struct Recording {
    std::unique_ptr<TraceWriter> writer;
    std::set<uint64_t> programs;
  };

  Recording* writer(uint32_t index) {
    Recording& one = devices_[index];
    if (!one.writer) {
      // Device 0 has the name as given, the others a number before the end: out.npt, out.1.npt.
      std::string path = file_;
      if (index) {
        const size_t dot = path.rfind('.') == std::string::npos ? path.size() : path.rfind('.');
        path.insert(dot, "." + std::to_string(index));
      }
      one.writer = std::make_unique<TraceWriter>(path, "{\"made_by\": \"record\", \"driver\": " + json_text(sides[0]) +
                                                           ", \"device\": " + std::to_string(index) + "}");
    }
    return &one;
  }

  // keep=examples: of commands that are alike in all but addresses and parameters, one, with the memory it needs.
  struct Example {
    uint64_t number = 0;
    std::map<std::string, uint64_t> ops;
  };
  void keep_example(const Launch& launch, const std::vector<Written>& written) {
    std::shared_ptr<const Program> program;
    if (launch.program) program = std::make_shared<const Program>(launch.command->program->source);
    Example& example = kept_[legalise::signature_of(*launch.command, program)];
    ++example.ops[label_of(launch)];
    if (example.number || finished_) return;
    example.number = launch.number;
    append_reproduction(*writer(launch.device().index)->writer, *launch.command, launch.program, launch.mirror(),
                        launch.regions, written, launch.number);
  }

  static std::string label_of(const Launch& launch) {
    return launch.command->label ? launch.command->label : command_name(launch.command->kind);
  }

  // On disk before it runs, so that a driver which crashes leaves the command behind. Null: nothing is written any
  // more.
  TraceWriter* begin(const Launch& launch) {
    std::lock_guard guard(lock_);
    if (finished_) return nullptr;
    Recording* recording = writer(launch.device().index);
    TraceWriter& out = *recording->writer;
    const npu_program* program = launch.command->program;
    if (program && recording->programs.insert(program->number).second) out.program(program->number, launch.desc);
    out.command(TraceCommand(*launch.command, launch.number, program ? program->number : 0));
    out.flush();
    return &out;
  }

  template <class Do>
  void write(npu_device& device, Do action) {
    std::lock_guard guard(lock_);
    if (!finished_ && !examples_) action(*writer(device.index)->writer);
  }

  std::mutex lock_;
  std::string file_;
  bool with_data_ = true, examples_ = false, finished_ = false;
  std::map<std::string, Example> kept_;  // by signature
  std::map<uint32_t, Recording> devices_;
  std::map<std::string, uint64_t> refused_;
};

struct AtExit {
  ~AtExit() {
    std::lock_guard guard(open_lock);
    for (Recorder* recorder : open_recorders) recorder->finish();
  }
} at_exit;

}  // namespace

std::unique_ptr<Watcher> make_watcher(const std::string& options) {
  return std::make_unique<Recorder>(options);
}

}  // namespace npu
