#include "csrc/core/graph/graph.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <vector>

#include "csrc/core/device/capture.h"
#include "csrc/core/device/internal.h"
#include "csrc/core/device/stream.h"
#include "csrc/core/device/thread_state.h"
#include "csrc/core/launch/launch.h"
#include "csrc/core/launch/legalised.h"
#include "csrc/core/memory/allocator.h"
#include "csrc/core/observe/sanitizer/sanitizer.h"
#include "csrc/core/random/graph_random.h"

namespace torch_npu {

std::atomic<int> g_captures{0};

namespace {

uint64_t next_number() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

struct Capture {
  // One thing a stream does. Operands and params are kept apart, in the order of the nodes.
  struct Node {
    enum Kind : uint8_t { kCommand, kCopy, kWrite, kRead } kind;
    npu_command command{};           // kCommand
    npu_addr dst = 0, src = 0;       // the others
    void* host = nullptr;            // kRead, and kWrite of pinned memory
    std::vector<std::byte> content;  // kWrite of other memory
    uint64_t size = 0;
  };

  const uint64_t number = next_number();
  c10::DeviceIndex device = -1;
  npu_stream* origin = nullptr;
  c10::MempoolId_t pool;
  bool capturing = true;
  std::vector<npu_stream*> streams;  // that take part
  std::vector<npu_stream*> replayed_on;
  std::mutex mutex;  // guards the following while it is captured or replayed
  std::vector<Node> nodes;
  std::vector<npu_operand> operands;
  std::vector<npu_scalar> params;
  GraphRandom random;

  void add(const npu_command& command);
  void finish();
  void run(const Device& target, npu_stream* stream, const Node& node);
};

using Node = Capture::Node;

namespace {

// The captures that run. Few, short-lived: a list will do.
struct Running {
  std::mutex mutex;
  std::vector<std::shared_ptr<Capture>> all;
};

Running& running() {
  static auto* running = new Running;
  return *running;
}

bool takes_part(const Capture& capture, const npu_stream* stream) {
  return std::find(capture.streams.begin(), capture.streams.end(), stream) != capture.streams.end();
}

std::shared_ptr<Capture> capture_on(const npu_stream* stream) {
  if (!any_capture()) return nullptr;
  std::lock_guard lock(running().mutex);
  for (const auto& capture : running().all) {
    if (takes_part(*capture, stream)) return capture;
  }
  return nullptr;
}

void stop(const std::shared_ptr<Capture>& capture) {
  std::lock_guard lock(running().mutex);
  if (!capture->capturing) return;
  capture->capturing = false;
  for (npu_stream* stream : capture->streams) end_pool(capture->device, stream);
  // Every stream that joined holds the pool once; the graph needs one of them.
  for (size_t k = 1; k < capture->streams.size(); ++k) release_pool(capture->device, capture->pool);
  std::erase(running().all, capture);
  watch_for_captures(--g_captures > 0);
}

template <class Fill>
bool record_node(npu_stream* stream, Fill fill) {
  const auto capture = capture_on(stream);
  if (!capture) return false;
  std::lock_guard lock(capture->mutex);
  fill(capture->nodes.emplace_back());
  return true;
}

}  // namespace

uint64_t capture_of(const npu_stream* stream) noexcept {
  const auto capture = capture_on(stream);
  return capture ? capture->number : 0;
}

bool capture_command(const Device& device, npu_stream* stream, const npu_command& command) {
  const auto capture = capture_on(stream);
  if (!capture) return false;
  npu_status status = NPU_UNSUPPORTED;
  if (!has_refused_program(command)) status = device.api->supports(device.handle, &command);
  if (status == NPU_UNSUPPORTED) status = supports_legalised(device, command);
  const char* label = command.label ? command.label : npu::command_name(command.kind);
  if (status == NPU_UNSUPPORTED) throw Unsupported(label);
  check(device, status, label);
  std::lock_guard lock(capture->mutex);
  capture->add(command);
  return true;
}

bool capture_copy(npu_stream* stream, npu_addr dst, npu_addr src, uint64_t size) {
  return record_node(stream, [&](Node& node) {
    node.kind = Node::kCopy;
    node.dst = dst;
    node.src = src;
    node.size = size;
  });
}

bool capture_write(npu_stream* stream, npu_addr dst, const void* src, uint64_t size, bool pinned) {
  return record_node(stream, [&](Node& node) {
    node.kind = Node::kWrite;
    node.dst = dst;
    node.size = size;
    if (pinned) {
      node.host = const_cast<void*>(src);
    } else {
      const auto* bytes = static_cast<const std::byte*>(src);
      node.content.assign(bytes, bytes + size);
    }
  });
}

void refuse_host_in_capture(const npu_stream* stream) {
  TORCH_CHECK(
      !capture_of(stream),
      "expected work that stays on the device while a graph is captured, got a copy to the host: an op that runs "
      "on the CPU (torch_npu.fallback.report() names them), item(), print, or a copy to memory that is not pinned");
}

bool capture_read(npu_stream* stream, void* dst, npu_addr src, uint64_t size, bool pinned) {
  if (!pinned) refuse_host_in_capture(stream);
  return record_node(stream, [&](Node& node) {
    node.kind = Node::kRead;
    node.host = dst;
    node.src = src;
    node.size = size;
  });
}

void join_capture(uint64_t number, const Device& device, npu_stream* stream) {
  std::lock_guard lock(running().mutex);
  for (const auto& capture : running().all) {
    if (takes_part(*capture, stream)) {
      TORCH_CHECK(capture->number == number,
                  "expected an event of the same capture, got one of another, for which a captured stream cannot wait");
      return;
    }
  }
  for (const auto& capture : running().all) {
    if (capture->number != number) continue;
    TORCH_CHECK(capture->device == device.index, "expected a stream of npu:", static_cast<int>(capture->device),
                ", where a graph is captured, got one of npu:", static_cast<int>(device.index));
    capture->streams.push_back(stream);
    begin_pool(capture->device, capture->pool, stream);
    return;
  }
}

std::optional<std::pair<uint64_t, uint64_t>> capture_philox(npu_stream* stream, NPUGeneratorImpl* generator,
                                                            uint64_t increment) {
  const auto capture = capture_on(stream);
  if (!capture) return std::nullopt;
  std::lock_guard lock(capture->mutex);
  return capture->random.draw(generator, increment);
}

void refuse_in_capture(c10::DeviceIndex device, const npu_stream* stream, const char* doing) {
  if (!any_capture()) return;
  std::lock_guard lock(running().mutex);
  for (const auto& capture : running().all) {
    TORCH_CHECK(!(stream ? takes_part(*capture, stream) : capture->device == device), "expected no ", doing,
                " while a graph is captured on npu:", static_cast<int>(device),
                ": the recorded work has not run, so there is nothing to wait for; do it after the capture");
  }
}

void Capture::add(const npu_command& command) {
  Node& node = nodes.emplace_back();
  node.kind = Node::kCommand;
  node.command = command;
  const size_t first = params.size();
  operands.insert(operands.end(), command.operands, command.operands + command.operand_count);
  params.insert(params.end(), command.params, command.params + command.param_count);
  random.look_through(params, first);
}

// Arrays no longer move: commands can point into them.
void Capture::finish() {
  const npu_operand* operand = operands.data();
  const npu_scalar* param = params.data();
  for (Node& node : nodes) {
    if (node.kind != Node::kCommand) continue;
    node.command.operands = operand;
    node.command.params = param;
    operand += node.command.operand_count;
    param += node.command.param_count;
  }
}

void Capture::run(const Device& target, npu_stream* stream, const Capture::Node& node) {
  switch (node.kind) {
    case Node::kCommand:
      submit_to(target, stream, node.command);
      break;
    case Node::kCopy:
      check(target, target.api->copy_on_device(stream, node.dst, node.src, node.size), "replaying a copy");
      break;
    case Node::kWrite:
      check(target,
            target.api->copy_to_device(stream, node.dst, node.host ? node.host : node.content.data(), node.size,
                                       node.host ? NPU_COPY_PINNED : 0),
            "replaying a copy from host to device");
      break;
    case Node::kRead:
      check(target, target.api->copy_to_host(stream, node.host, node.src, node.size, NPU_COPY_PINNED),
            "replaying a copy from device to host");
      break;
  }
}

Graph::Graph() = default;

Graph::~Graph() {
  try {
    reset();
  } catch (const std::exception& failure) {
    TORCH_WARN("a graph could not be given up: ", failure.what());
  }
}

void Graph::capture_begin(c10::MempoolId_t pool) {
  TORCH_CHECK(!capture_, "expected a graph without commands, got one that was captured before: call reset() first");
  const Device& target = device(current_device());
  npu_stream* stream = current_handle(target.index);
  TORCH_CHECK(stream != g_default_streams[target.index],
              "expected a capture on another stream than the default one, on which everything else runs: use "
              "torch.npu.graph(), or torch.npu.stream(torch.npu.Stream())");
  auto capture = std::make_shared<Capture>();
  capture->device = target.index;
  capture->origin = stream;
  capture->pool = pool == c10::MempoolId_t{0, 0} ? c10::MempoolId_t{next_number(), 0} : pool;
  capture->streams.push_back(stream);
  std::lock_guard lock(running().mutex);
  for (const auto& other : running().all) {
    TORCH_CHECK(!takes_part(*other, stream), "expected a stream that is not captured, got one that already is");
  }
  begin_pool(target.index, capture->pool, stream);
  running().all.push_back(capture);
  capture_ = std::move(capture);
  ++g_captures;
  watch_for_captures(true);
}

void Graph::capture_end() {
  TORCH_CHECK(capture_ && capture_->capturing, "expected a graph that is being captured: call capture_begin() first");
  const bool same = current_handle(capture_->device) == capture_->origin;
  stop(capture_);
  capture_->finish();
  TORCH_CHECK(same, "expected the end of a capture on the stream where it began, got it on another");
}

Capture& Graph::finished(const char* doing) const {
  TORCH_CHECK(capture_ && !capture_->capturing, "expected a captured graph to ", doing,
              ": call capture_begin() and capture_end() first");
  return *capture_;
}

void Graph::replay() {
  Capture& capture = finished("replay");
  const Device& target = device(capture.device);
  npu_stream* stream = current_handle(capture.device);
  TORCH_CHECK(!capture_of(stream),
              "expected a replay outside of a capture, got one on a stream that is being captured");
  const sanitizer::ReplayScope replaying;  // before the lock: it may need Python's
  std::lock_guard lock(capture.mutex);
  capture.random.fill(capture.params);
  auto& streams = capture.replayed_on;
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
  for (const Node& node : capture.nodes) {
    try {
      capture.run(target, stream, node);
    } catch (const Unsupported& refused) {
      TORCH_CHECK(false, "npu:", static_cast<int>(capture.device), " (", target.driver, "): expected ", refused.label,
                  " as it was captured, but the driver refuses it; run without a graph, then it falls back to the CPU");
    }
  }
}

void Graph::reset() {
  if (!capture_) return;
  const auto capture = std::move(capture_);
  capture_ = nullptr;
  stop(capture);
  if (is_in_bad_fork()) return;
  // The pool's memory is next used behind the origin's work, and that behind the replays.
  const Device& target = opened_device(capture->device);
  for (npu_stream* stream : capture->replayed_on) {
    if (stream == capture->origin) continue;
    npu_event* event = nullptr;
    check(target, target.api->event_create(target.handle, 0, &event), "giving up a graph");
    npu_status status = target.api->event_record(event, stream);
    if (status == NPU_OK) status = target.api->stream_wait_event(capture->origin, event);
    target.api->event_destroy(event);
    check(target, status, "giving up a graph");
  }
  release_pool(capture->device, capture->pool);
}

c10::MempoolId_t Graph::pool() const {
  TORCH_CHECK(capture_, "expected a graph with a pool, got one that was never captured: call capture_begin() first");
  return capture_->pool;
}

size_t Graph::size() const {
  return capture_ ? capture_->nodes.size() : 0;
}

void Graph::debug_dump(const std::string& path) const {
  const Capture& capture = finished("dump");
  std::ofstream file(path);
  const auto address = [&](npu_addr addr) -> std::ostream& { return file << " 0x" << std::hex << addr << std::dec; };
  for (const Node& node : capture.nodes) {
    if (node.kind != Node::kCommand) {
      static const char* const names[] = {"", "copy", "write", "read"};
      file << names[node.kind] << ' ' << node.size << " bytes";
      if (node.kind != Node::kRead) address(node.dst);
      if (node.kind != Node::kWrite) address(node.src);
      file << '\n';
      continue;
    }
    const npu_command& command = node.command;
    file << npu::command_name(command.kind) << ' ' << (command.label ? command.label : "") << " [";
    for (int d = 0; d < command.rank; ++d) file << (d ? ", " : "") << command.size[d];
    file << ']';
    for (uint32_t k = 0; k < command.operand_count; ++k) address(command.operands[k].addr);
    file << '\n';
  }
  TORCH_CHECK(file.flush(), "expected a file that can be written, got ", path);
}

c10::MempoolId_t graph_pool_handle() {
  return {0, next_number()};
}

}  // namespace torch_npu
