#include "csrc/core/observe/sanitizer/record.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <deque>
#include <map>
#include <mutex>

#include "csrc/core/device/internal.h"

namespace torch_npu::sanitizer {
namespace {

// Where the op of the forward pass was whose node has this number. Autograd counts nodes per thread, and makes the
// node before the op runs; its own threads have no Python lines, so this is what a person can be told.
struct ForwardLines {
  static constexpr size_t kMost = 20'000;
  using Node = std::pair<uint64_t, uint64_t>;  // thread, number
  std::mutex mutex;
  std::map<Node, history::Traceback> all;
  std::deque<Node> oldest_first;
};

ForwardLines& forward_lines() {
  static auto* lines = new ForwardLines;
  return *lines;
}

void keep_forward_line(const history::Traceback& traceback) {
  const uint64_t next = at::sequence_number::peek();
  if (!c10::GradMode::is_enabled() || next == 0) return;
  ForwardLines& lines = forward_lines();
  std::lock_guard lock(lines.mutex);
  // The first one behind the node is the op's own; what follows may be ops without a gradient.
  const ForwardLines::Node node{at::RecordFunction::currentThreadId(), next - 1};
  if (!lines.all.try_emplace(node, traceback).second) return;
  lines.oldest_first.push_back(node);
  if (lines.all.size() <= ForwardLines::kMost) return;
  lines.all.erase(lines.oldest_first.front());
  lines.oldest_first.pop_front();
}

std::string place_of(const history::Traceback& traceback) {
  return history::place_of(history::symbolize({traceback})[0]);
}

}  // namespace

RecordPtr make_record(std::string what, const npu_stream* stream) {
  auto record = std::make_shared<Record>();
  record->what = std::move(what);
  if (const auto found = stream ? find_stream(stream) : std::nullopt) {
    record->stream = found->device().str() + " stream " + std::to_string(found->id());
  }
  record->traceback = torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
  if (const auto node = torch::autograd::get_current_node()) {
    record->node = node->name();
    ForwardLines& lines = forward_lines();
    std::lock_guard lock(lines.mutex);
    const auto found = lines.all.find({node->thread_id(), node->sequence_nr()});
    if (found != lines.all.end()) record->forward = found->second;
  } else {
    keep_forward_line(record->traceback);
  }
  return record;
}

std::string place_of(const Record& record) {
  if (!record.traceback) return "";
  std::string place = place_of(record.traceback);
  if (record.node.empty()) return place;
  const std::string of = record.forward ? "gradient of " + place_of(record.forward) : record.node;
  return place == history::kNoPython ? of : place + ", " + of;
}

void forget_forward_lines() {
  std::map<ForwardLines::Node, history::Traceback> old;  // destroyed without the mutex
  std::lock_guard lock(forward_lines().mutex);
  forward_lines().all.swap(old);
  forward_lines().oldest_first.clear();
}

}  // namespace torch_npu::sanitizer
