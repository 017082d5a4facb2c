// The npu activity of torch.profiler: what the devices did becomes slices in Kineto's trace, one lane per stream, each
// with an arrow from the host's call and a link to the op that asked (docs/design/profiler.md).
#if TORCH_NPU_TORCH_MAJOR > 2 || TORCH_NPU_TORCH_MINOR >= 12
#define USE_KINETO
#define FMT_HEADER_ONLY  // torch exports no functions of fmt, which Kineto's headers use
#include <IActivityProfiler.h>
#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "csrc/core/device/device.h"
#include "csrc/core/observe/command_times.h"

namespace torch_npu {
namespace {

using libkineto::ActivityType;
using libkineto::GenericTraceActivity;

// Behind the host's processes, whose numbers order the lanes too.
constexpr int64_t kBehindProcesses = 5'000'000;

libkineto::DeviceInfo device_info(c10::DeviceIndex index) {
  const std::string name = "npu:" + std::to_string(index);
  return {index, kBehindProcesses + index, name + " (" + opened_device(index).properties.name + ")", name};
}

class Session final : public libkineto::IActivityProfilerSession {
 public:
  ~Session() override {
    if (status_ == libkineto::TraceStatus::RECORDING) stop_recording();
  }

  void start() override {
    status_ = libkineto::TraceStatus::RECORDING;
    start_recording();
  }
  void stop() override {
    if (status_ != libkineto::TraceStatus::RECORDING) return;
    status_ = libkineto::TraceStatus::PROCESSING;
    commands_ = stop_recording();
  }
  std::vector<std::string> errors() override { return {}; }

  void pushCorrelationId(uint64_t id) override { push_op(id); }
  void popCorrelationId() override { pop_op(); }
  void pushUserCorrelationId(uint64_t id) override { push_range(id); }
  void popUserCorrelationId() override { pop_range(); }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, 0, 0);
  }
  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback op_of, int64_t begin,
                    int64_t end) override {
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span.name = "npu";
    buffer_->span.startTime = begin;
    buffer_->span.endTime = end;
    buffer_->span.iteration = 0;
    buffer_->gpuOpCount = static_cast<int>(commands_.size());
    uint32_t number = 0;
    for (const TimedCommand& command : commands_) {
      const libkineto::ITraceActivity* op = command.op ? op_of(static_cast<int32_t>(command.op)) : nullptr;
      ++number;
      logger.handleActivity(host_slice(command, op, number));
      logger.handleActivity(device_slice(command, op, number));
      streams_[{command.device, command.stream}] = true;
    }
    // Kineto asks for one device; the others are told here.
    c10::DeviceIndex last = -1;
    for (const auto& [stream, used] : streams_) {
      if (last >= 0 && stream.first != last) logger.handleDeviceInfo(device_info(stream.first), 0);
      last = stream.first;
    }
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    if (streams_.empty()) return nullptr;
    return std::make_unique<libkineto::DeviceInfo>(device_info(streams_.begin()->first.first));
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> infos;
    for (const auto& [stream, used] : streams_) {
      infos.push_back({stream.second, stream.second, stream.first, "stream " + std::to_string(stream.second)});
    }
    return infos;
  }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

 private:
  GenericTraceActivity& slice(ActivityType type, const std::string& name, const libkineto::ITraceActivity* op,
                              uint32_t number, bool starts_arrow) {
    buffer_->emplace_activity(buffer_->span, type, name);
    GenericTraceActivity& made = *buffer_->activities.back();
    made.id = static_cast<int32_t>(number);
    made.linked = op;
    made.flow.id = number;
    made.flow.type = libkineto::kLinkAsyncCpuGpu;
    made.flow.start = starts_arrow;
    made.addMetadata("correlation", number);
    return made;
  }

  // Inside of the op's, also where two clocks disagree about nanoseconds.
  GenericTraceActivity& host_slice(const TimedCommand& command, const libkineto::ITraceActivity* op, uint32_t number) {
    GenericTraceActivity& made = slice(ActivityType::PRIVATEUSE1_RUNTIME, command.function, op, number, true);
    made.device = getpid();
    made.resource = command.thread;
    made.threadId = command.thread;
    made.startTime = command.host_start_ns;
    made.endTime = command.host_end_ns;
    if (op) {
      const int64_t first = op->timestamp(), last = op->timestamp() + op->duration();
      made.startTime = std::clamp(made.startTime, first, std::max(first, last));
      made.endTime = std::clamp(made.endTime, made.startTime, std::max(made.startTime, last));
    }
    return made;
  }

  GenericTraceActivity& device_slice(const TimedCommand& command, const libkineto::ITraceActivity* op,
                                     uint32_t number) {
    GenericTraceActivity& made = slice(command.is_copy ? ActivityType::GPU_MEMCPY : ActivityType::CONCURRENT_KERNEL,
                                       command.name, op, number, false);
    made.device = command.device;
    made.resource = static_cast<int32_t>(command.stream);
    made.startTime = command.start_ns;
    made.endTime = command.end_ns;
    made.addMetadata("device", static_cast<int>(command.device));
    made.addMetadata("stream", command.stream);
    made.addMetadata("bytes", command.bytes);
    if (command.flops) made.addMetadata("flops", command.flops);
    if (!command.shape.empty()) made.addMetadataQuoted("shape", command.shape);
    if (command.cycles > 0) made.addMetadata("cycles", static_cast<int64_t>(command.cycles));
    const double seconds = static_cast<double>(command.end_ns - command.start_ns) * 1e-9;
    if (seconds > 0) {
      made.addMetadata("GB/s", static_cast<double>(command.bytes) / seconds * 1e-9);
      if (command.flops) made.addMetadata("GFLOP/s", static_cast<double>(command.flops) / seconds * 1e-9);
    }
    return made;
  }

  std::vector<TimedCommand> commands_;
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, bool> streams_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
};

class NPUProfiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return activities_; }
  // Nothing to do in a profile of the host alone.
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType>& wanted,
                                                                 const libkineto::Config&) override {
    if (!wanted.count(ActivityType::CONCURRENT_KERNEL) || is_in_bad_fork()) return nullptr;
    return std::make_unique<Session>();
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType>& wanted,
                                                                 const libkineto::Config& config) override {
    return configure(wanted, config);
  }

 private:
  std::string name_ = "npu";
  std::set<ActivityType> activities_{ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY,
                                     ActivityType::PRIVATEUSE1_RUNTIME};
};

REGISTER_PRIVATEUSE1_PROFILER(NPUProfiler);

}  // namespace
}  // namespace torch_npu
#endif
