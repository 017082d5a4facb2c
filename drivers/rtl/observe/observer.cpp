#include "drivers/rtl/observe/observer.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "drivers/rtl/observe/test_vector.h"
#include "support/driver/json_text.h"

using namespace npu_hw;

namespace rtl {
namespace {

std::atomic<uint64_t> commands{0};

constexpr struct {
  const char* name;
  uint32_t low;
} kCounters[] = {
    {"cycles", REG_BUSY_LO}, {"matrix", REG_MATRIX_LO}, {"reads", REG_READS_LO}, {"writes", REG_WRITES_LO}};
constexpr size_t kCount = std::size(kCounters);

// TORCH_NPU_RTL_CYCLES: a line of JSON for every command.
class Cycles {
 public:
  Cycles() {
    const char* path = std::getenv("TORCH_NPU_RTL_CYCLES");
    if (!path || !*path) return;
    file_ = std::strcmp(path, "-") == 0 ? stderr : std::fopen(path, "w");
    if (!file_) problem_ = std::string("TORCH_NPU_RTL_CYCLES: expected a file that can be written, got ") + path;
  }
  bool on() const { return file_ != nullptr; }
  const std::string& problem() const { return problem_; }
  void write(uint64_t number, const Observed& command, uint32_t clock_mhz, size_t packets,
             const uint64_t (&spent)[kCount]) {
    std::string line = "{\"command\": " + std::to_string(number) + ", \"device\": " + std::to_string(command.device) +
                       ", \"kind\": " + npu::json_text(command.kind) + ", \"op\": " + npu::json_text(command.label) +
                       ", \"packets\": " + std::to_string(packets);
    for (size_t i = 0; i < kCount; i++)
      line += std::string(", \"") + kCounters[i].name + "\": " + std::to_string(spent[i]);
    char time[48];
    std::snprintf(time, sizeof time, ", \"us\": %.3f}\n", static_cast<double>(spent[0]) / clock_mhz);
    std::lock_guard<std::mutex> lock(mutex_);
    std::fputs((line + time).c_str(), file_);
    std::fflush(file_);  // a process may end without closing its devices
  }

 private:
  std::FILE* file_ = nullptr;
  std::string problem_;
  std::mutex mutex_;
};

// TORCH_NPU_RTL_TRACE: WHAT[@FILE].
class Trace {
 public:
  Trace() {
    const char* text = std::getenv("TORCH_NPU_RTL_TRACE");
    if (!text || !*text) return;
    what_ = text;
    if (const size_t at = what_.rfind('@'); at != std::string::npos) {
      file_ = what_.substr(at + 1);
      what_.resize(at);
    }
    ending_ = file_.size() < 5 ? "" : file_.substr(file_.rfind('.') == std::string::npos ? 0 : file_.rfind('.'));
    char* end = nullptr;
    if (!what_.empty() && what_[0] >= '0' && what_[0] <= '9') {
      first_ = last_ = std::strtoull(what_.c_str(), &end, 10);
      if (*end == '-') last_ = std::strtoull(end + 1, &end, 10);
    }
    if (what_.empty() || (end && (*end || first_ == 0 || last_ < first_)) || (ending_ != ".vcd" && ending_ != ".json"))
      problem_ = std::string(
                     "TORCH_NPU_RTL_TRACE: expected NUMBER, FIRST-LAST or an op's name, then @FILE.vcd (a "
                     "waveform) or @FILE.json (a test vector), got '") +
                 text + "'";
  }
  const std::string& problem() const { return problem_; }
  bool wants(uint64_t number, const Observed& command) const {
    return first_ ? first_ <= number && number <= last_ : !what_.empty() && what_ == command.label;
  }
  bool waveform() const { return ending_ == ".vcd"; }
  std::string file(uint64_t number) const {
    return file_.substr(0, file_.size() - ending_.size()) + "-" + std::to_string(number) + ending_;
  }

 private:
  std::string what_, file_ = "npu.vcd", ending_, problem_;
  uint64_t first_ = 0, last_ = 0;  // 0: by name
};

Failure run_traced(Processor& processor, const Observed& command, std::vector<Packet>& packets, const Trace& trace,
                   uint64_t number) {
  const std::string file = trace.file(number);
  if (!trace.waveform()) {
    TestVector vector(processor.board(), packets);
    Failure failure = processor.run(packets);
    if (const std::string problem = vector.write(file, command.kind, command.label); !problem.empty())
      return {NPU_ERROR_INVALID, "TORCH_NPU_RTL_TRACE: " + problem};
    return failure;
  }
  if (!processor.board().trace(file))
    return {NPU_ERROR_INVALID,
            "TORCH_NPU_RTL_TRACE: expected a simulated NPU and a file that can be written, got none: " + file};
  Failure failure = processor.run(packets);
  processor.board().trace("");
  return failure;
}

}  // namespace

Failure run_observed(Processor& processor, const Observed& command, std::vector<Packet>& packets) try {
  static Cycles cycles;
  static const Trace trace;
  const uint64_t number = ++commands;
  for (const std::string& problem : {cycles.problem(), trace.problem()})
    if (!problem.empty()) return {NPU_ERROR_INVALID, problem};
  uint64_t spent[kCount] = {};
  if (cycles.on())
    for (size_t i = 0; i < kCount; i++) spent[i] = processor.counter(kCounters[i].low);
  Failure failure =
      trace.wants(number, command) ? run_traced(processor, command, packets, trace, number) : processor.run(packets);
  if (cycles.on() && failure.status == NPU_OK) {
    for (size_t i = 0; i < kCount; i++) spent[i] = processor.counter(kCounters[i].low) - spent[i];
    cycles.write(number, command, processor.board().clock_mhz(), packets.size(), spent);
  }
  return failure;
} catch (const BoardLost& why) {  // by what is read beside the packets
  return {NPU_ERROR_DEVICE_LOST, why.what()};
}

}  // namespace rtl
