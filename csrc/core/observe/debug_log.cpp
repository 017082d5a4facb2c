// Which op a command, a copy or a call of the driver belongs to. PyTorch tells when an op begins and ends; ops call
// ops, so each thread has a stack of them. What the driver is asked for belongs to the innermost op.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <mutex>

#include "csrc/core/device/device.h"
#include "csrc/core/device/driver_watch.h"
#include "csrc/core/device/internal.h"
#include "csrc/core/launch/legalised.h"
#include "csrc/core/observe/debug_lines.h"
#include "support/loading/driver_table.h"
#include "support/program/program.h"

namespace torch_npu::debug {
namespace {

std::atomic<int> g_level{0};

struct Frame {
  OpLine line;
  const c10::TensorImpl* first = nullptr;  // argument
  bool is_view = false;                    // by its schema
  bool on_npu = false;                     // has an npu tensor
  bool on_cpu = false;
  bool is_traced = false;   // has a tensor without memory: somebody follows what would happen
  bool is_written = false;  // its line was written
  bool has_acted = false;   // it or an op inside wrote a line
  size_t waiting = 0;       // lines that waited when it began
};

// Lines of views and of ops on CPU tensors wait until the op around them ends, because that one may be all there is to
// say: reshape calls view, and is the view.
struct Thread {
  std::vector<Frame> frames;
  std::vector<OpLine> waiting;
  int fallbacks = 0;       // inside of so many
  std::string fallback;    // the outermost of them
  std::string command_op;  // of a command that no op asked for, for the lines below it
};

Thread& this_thread() {
  static thread_local Thread thread;
  return thread;
}

struct Context final : at::ObserverContext {
  size_t depth;
  explicit Context(size_t depth) : depth(depth) {}
};

// Ops that move data and do nothing else. One may call the next; the outermost is what the program asked for.
bool is_copy(const std::string& op) {
  static constexpr std::string_view kCopies[] = {"aten::_copy_from", "aten::_copy_from_and_resize",
                                                 "aten::copy_",      "aten::_to_copy",
                                                 "aten::to",         "aten::clone",
                                                 "aten::contiguous", "aten::is_nonzero",
                                                 "aten::item",       "aten::_local_scalar_dense"};
  return std::find(std::begin(kCopies), std::end(kCopies), op) != std::end(kCopies);
}

bool touches_no_data(std::string_view op) {
  return op.starts_with("aten::empty") || op.starts_with("aten::new_empty") || op == "aten::resize_" ||
         op.starts_with("aten::set_") || op == "aten::detach_";
}

void note_device(Frame& frame, const at::Tensor& tensor) {
  frame.is_traced |= tensor.is_meta() || tensor.key_set().has(c10::DispatchKey::Python);
  frame.on_npu |= tensor.is_privateuseone();
  frame.on_cpu |= tensor.is_cpu();
}

void add_tensor(Frame& frame, const at::Tensor& tensor, bool shown) {
  if (!tensor.defined()) return;
  if (!frame.first) frame.first = tensor.unsafeGetTensorImpl();
  note_device(frame, tensor);
  if (!shown) return;
  TensorText text;
  if (!tensor.is_nested() && !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
    text.shape = tensor.sizes().vec();
  }
  text.dtype = c10::getDtypeNames(tensor.scalar_type()).first;
  text.device = tensor.device().str();
  frame.line.tensors.push_back(std::move(text));
}

template <class Visit>
void each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const auto& tensor : value.toOptionalTensorVector()) {
      if (tensor) visit(*tensor);
    }
  }
}

std::unique_ptr<at::ObserverContext> op_begins(const at::RecordFunction& op) {
  const auto name = op.operator_name();
  if (!name) return nullptr;  // not an op: a range of the program
  Thread& thread = this_thread();
  Frame frame;
  frame.line.op = name->name;
  frame.waiting = thread.waiting.size();
  const auto handle = c10::Dispatcher::singleton().findSchema(*name);
  const auto inputs = op.inputs();
  for (size_t k = 0; k < inputs.size(); ++k) {
    const bool is_out = handle && k < handle->schema().arguments().size() && handle->schema().arguments()[k].is_out();
    each_tensor(inputs[k], [&](const at::Tensor& tensor) { add_tensor(frame, tensor, !is_out); });
  }
  if (handle) {
    for (const c10::Argument& result : handle->schema().returns()) {
      frame.is_view |= result.alias_info() && !result.alias_info()->isWrite();
    }
  }
  thread.frames.push_back(std::move(frame));
  return std::make_unique<Context>(thread.frames.size());
}

void write_waiting(Thread& thread, size_t count) {
  for (size_t k = 0; k < count; ++k) write_line(thread.waiting[k]);
  thread.waiting.erase(thread.waiting.begin(), thread.waiting.begin() + static_cast<int64_t>(count));
  for (Frame& frame : thread.frames) frame.waiting -= std::min(frame.waiting, count);
}

// An op that asked nothing of a driver, and neither did the ops inside: a view, or work on CPU tensors.
void say_quiet_op(Thread& thread, Frame& frame, const at::RecordFunction& op) {
  const c10::TensorImpl* result = nullptr;
  for (const c10::IValue& output : op.outputs()) {
    each_tensor(output, [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      if (!result) result = tensor.unsafeGetTensorImpl();
      note_device(frame, tensor);
    });
  }
  if (frame.is_traced) return;
  const auto inner = thread.waiting.begin() + static_cast<int64_t>(frame.waiting);
  const auto all_are = [&](Tag tag) {
    return std::all_of(inner, thread.waiting.end(), [&](const OpLine& line) { return line.tag == tag; });
  };
  if (result && result == frame.first && inner == thread.waiting.end() && frame.on_npu)
    return;  // gave back what it got
  if (frame.is_view && frame.on_npu && all_are(Tag::View)) {
    frame.line.tag = Tag::View;
  } else if (!frame.on_npu && frame.on_cpu && all_are(Tag::Cpu) && !touches_no_data(frame.line.op) &&
             (!frame.is_view || inner != thread.waiting.end())) {
    frame.line.tag = Tag::Cpu;
  } else {
    return;
  }
  thread.waiting.erase(inner, thread.waiting.end());
  thread.waiting.push_back(std::move(frame.line));
}

void op_ends(const at::RecordFunction& op, at::ObserverContext* context) {
  if (!context) return;
  Thread& thread = this_thread();
  const size_t depth = static_cast<Context*>(context)->depth;
  if (thread.frames.size() < depth) return;
  thread.frames.resize(depth);  // ops inside that ended elsewhere
  Frame& frame = thread.frames.back();
  const bool silent = g_level.load(std::memory_order_relaxed) == 0 || thread.fallbacks > 0;
  if (silent || frame.is_written) {
    thread.waiting.resize(std::min(thread.waiting.size(), frame.waiting));  // how it works inside
  } else if (!frame.has_acted) {
    say_quiet_op(thread, frame, op);
  }
  thread.frames.pop_back();
  if (thread.frames.empty()) write_waiting(thread, thread.waiting.size());
}

std::string route_of(const Frame& frame, const char* direction) {
  const std::string_view way(direction);
  const auto device = [&]() -> std::string {
    for (const TensorText& tensor : frame.line.tensors) {
      if (tensor.device.starts_with("npu")) return tensor.device;
    }
    return "npu";
  }();
  return way == "H->D" ? "cpu -> " + device : way == "D->H" ? device + " -> cpu" : device + " -> " + device;
}

// The innermost op asks something of a driver: its line comes first. False: it is within a fallback, whose line is
// there.
bool say_op(Thread& thread, const char* direction) {
  if (thread.fallbacks > 0) return false;
  if (thread.frames.empty()) return true;
  size_t chosen = thread.frames.size() - 1;
  const bool copies = is_copy(thread.frames[chosen].line.op);
  while (copies && chosen > 0 && is_copy(thread.frames[chosen - 1].line.op)) --chosen;
  Frame& frame = thread.frames[chosen];
  if (frame.is_written) return true;
  thread.waiting.resize(std::min(thread.waiting.size(), frame.waiting));  // how it works inside
  write_waiting(thread, thread.waiting.size());
  OpLine line = frame.line;
  line.tag = copies ? Tag::Copy : Tag::Npu;
  if (copies) {
    line.route = route_of(thread.frames.back(), direction);
    line.tensors.resize(std::min<size_t>(line.tensors.size(), 1));
  }
  write_line(line);
  frame.is_written = true;
  for (Frame& around : thread.frames) around.has_acted = true;
  return true;
}

const std::string& op_of(const Thread& thread) {
  if (thread.fallbacks > 0) return thread.fallback;
  return thread.frames.empty() ? thread.command_op : thread.frames.back().line.op;
}

std::string label_of(const npu_command& command) {
  return command.label ? command.label : npu::command_name(command.kind);
}

std::vector<int64_t> sizes_of(const npu_command& command) {
  return {command.size, command.size + command.rank};
}

// A command of compiled code or of a graph: no op of PyTorch asked for it.
void say_command(Thread& thread, const npu_command& command) {
  OpLine line;
  line.op = label_of(command);
  const auto type_of = [&](uint32_t operand) -> std::string {
    const char* name = npu::dtype_name(command.operands[operand].dtype);
    return std::string_view(name) == "f32" ? "float32" : name;
  };
  if (command.kind == NPU_MATMUL) {
    TensorText left{sizes_of(command), type_of(0), ""}, right{sizes_of(command), type_of(1), ""};
    left.shape[command.rank - 1] = right.shape[command.rank - 2] = command.u.matmul.k;
    line.tensors = {left, right};
    line.is_product = true;
  } else {
    line.tensors = {{sizes_of(command), command.operand_count ? type_of(0) : "float32", ""}};
  }
  thread.command_op = line.op;
  write_line(line);
}

const char* direction_of(std::string_view function) {
  if (function == "copy_to_device") return "H->D";
  if (function == "copy_to_host") return "D->H";
  return function == "copy_on_device" ? "D->D" : nullptr;
}

std::string describe(const DriverCall& call) {
  char text[32] = "";
  std::string what;
  const auto add = [&](const std::string& more) { what += (what.empty() ? "" : ", ") + more; };
  if (call.command) {
    std::string sizes;
    for (const int64_t size : sizes_of(*call.command)) sizes += (sizes.empty() ? "" : "x") + std::to_string(size);
    what = std::string(npu::command_name(call.command->kind)) + " " + label_of(*call.command) + " [" + sizes + "]";
  }
  if (call.program && call.program->name) add(call.program->name);
  if (call.addr) {
    std::snprintf(text, sizeof(text), "%#llx", static_cast<unsigned long long>(call.addr));
    add(text);
  }
  if (call.size) add(std::to_string(call.size) + " bytes");
  if (const auto stream = call.stream ? find_stream(call.stream) : std::nullopt) {
    add(stream->device().str() + " stream " + std::to_string(stream->id()));
  }
  return what;
}

struct Watcher final : DriverWatcher {
  // Level 3 speaks before the call, so that a call that never returns is the last line.
  uint64_t started(const DriverCall& call) override {
    if (g_level.load(std::memory_order_relaxed) < 3) return 0;
    Thread& thread = this_thread();
    say_op(thread, direction_of(call.function) ? direction_of(call.function) : "");
    if (call.command && thread.frames.empty() && thread.fallbacks == 0) say_command(thread, *call.command);
    write_line(CallLine{call.function, describe(call), "", is_inside(thread, call)}, op_of(thread));
    return 1;
  }

  void finished(const DriverCall& call, npu_status status, uint64_t said) override {
    Thread& thread = this_thread();
    if (status != NPU_OK) {
      if (said && status != NPU_NOT_READY) {
        write_line(CallLine{call.function, "", npu::status_name(status), is_inside(thread, call)}, op_of(thread));
      }
      return;
    }
    const std::string_view function(call.function);
    const char* direction = direction_of(function);
    if (direction) {
      say_op(thread, direction);
      if (g_level.load(std::memory_order_relaxed) >= 2) write_line(TransferLine{direction, call.size}, op_of(thread));
    } else if (function == "submit" || function == "supports") {  // asked of commands that a graph records
      if (!said && say_op(thread, "") && thread.frames.empty()) say_command(thread, *call.command);
    }
  }

  static bool is_inside(const Thread& thread, const DriverCall& call) {
    return !thread.frames.empty() || thread.fallbacks > 0 || call.command;
  }
};

void say_decision(c10::DeviceIndex, const Decision& decision) {
  Thread& thread = this_thread();
  say_op(thread, "");
  write_line(DecisionLine{decision.command, decision.words, decision.rules, decision.steps.size()}, op_of(thread));
}

Watcher g_watcher;
std::mutex g_mutex;
at::CallbackHandle g_callback = at::INVALID_CALLBACK_HANDLE;

// `import torch` has refused a bad value before; in a program without Python it is reported.
const bool g_environment_read = [] {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value ? value : "";
  };
  const std::string level = variable("TORCH_NPU_DEBUG");
  if (level.empty() || level == "0") return true;
  try {
    TORCH_CHECK(level == "1" || level == "2" || level == "3", "expected TORCH_NPU_DEBUG to be 0, 1, 2 or 3, got \"",
                level, "\"");
    const std::string format = variable("TORCH_NPU_DEBUG_FORMAT");
    TORCH_CHECK(format.empty() || format == "text" || format == "json",
                "expected TORCH_NPU_DEBUG_FORMAT to be text or json, got \"", format, "\"");
    enable({level[0] - '0', format == "json" ? Format::Json : Format::Text, variable("TORCH_NPU_DEBUG_FILE")});
  } catch (const c10::Error& error) {
    std::cerr << "torch_npu: " << error.what_without_backtrace() << '\n';
  }
  return true;
}();

}  // namespace

void enable(const Options& options) {
  TORCH_CHECK_VALUE(options.level >= 1 && options.level <= 3,
                    "expected a level from 1 to 3 (1: ops, 2: and transfers, "
                    "3: and calls of the driver), got ",
                    options.level);
  std::lock_guard lock(g_mutex);
  open_log(options);
  if (g_level.exchange(options.level) > 0) return;
  g_callback = at::addGlobalCallback(at::RecordFunctionCallback(op_begins, op_ends)
                                         .needsInputs(true)
                                         .needsOutputs(true)
                                         .scopes({at::RecordScope::FUNCTION}));
  add_watcher(&g_watcher);
  tell_decisions(&say_decision);
}

void disable() noexcept {
  std::lock_guard lock(g_mutex);
  if (g_level.exchange(0) == 0) return;
  remove_watcher(&g_watcher);
  tell_decisions(nullptr);
  at::removeCallback(g_callback);
  close_log();
}

int level() noexcept {
  return g_level.load(std::memory_order_relaxed);
}

void FallbackScope::enter(const std::string& op) {
  Thread& thread = this_thread();
  if (thread.fallbacks++ > 0) return;
  thread.fallback = op.substr(0, op.find('.'));
  OpLine line;
  if (!thread.frames.empty()) {
    Frame& frame = thread.frames.back();
    thread.waiting.resize(std::min(thread.waiting.size(), frame.waiting));
    line.tensors = frame.line.tensors;
    frame.is_written = true;
    for (Frame& around : thread.frames) around.has_acted = true;
  }
  write_waiting(thread, thread.waiting.size());
  line.tag = Tag::Fallback;
  line.op = thread.fallback;
  write_line(line);
}

void FallbackScope::leave() noexcept {
  --this_thread().fallbacks;
}

}  // namespace torch_npu::debug
