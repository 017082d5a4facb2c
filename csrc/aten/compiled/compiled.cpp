#include "csrc/aten/compiled/compiled.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <stdexcept>

#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/fallback/fallback.h"
#include "csrc/aten/fallback/host_executor.h"
#include "csrc/core/device/capture.h"
#include "csrc/core/device/stream.h"
#include "csrc/core/launch/legalised.h"
#include "csrc/core/memory/staging.h"
#include "csrc/core/observe/debug.h"
#include "support/loading/driver_table.h"
#include "support/program/accesses.h"

namespace torch_npu {
namespace {

constexpr int kSize = -1, kParam = -2, kDepth = -3, kGeometry = -4;

// Field number k of a convolution's geometry, behind its mode.
int64_t& geometry_field(npu_conv& conv, int k) {
  int64_t* const single[] = {&conv.batch, &conv.in_channels, &conv.out_channels, &conv.groups};
  int64_t* const spatial[] = {conv.in_size, conv.out_size, conv.kernel, conv.stride, conv.padding, conv.dilation};
  const int rank = static_cast<int>(conv.spatial_rank);
  return k < 4 ? *single[k] : spatial[(k - 4) / rank][(k - 4) % rank];
}

// Labels live forever; the same kernel may be made again and again.
const char* intern(const std::string& text) {
  static std::mutex mutex;
  static auto* texts = new std::set<std::string>;
  std::lock_guard lock(mutex);
  return texts->insert(text).first->c_str();
}

}  // namespace

// Kernels whose programs differ in their name only share one, which the host parses and validates once: when code is
// written (check_program), or when a kernel is made from code of an earlier process.
struct CompiledKernel::SharedProgram {
  npu::Program program;
  DeviceProgram given;

  explicit SharedProgram(const npu::Program& program) : program(program), given(program) {}

  // Null: `*broken` says what is wrong with the text.
  static SharedProgram* of(const std::string& text, std::string* broken) {
    static std::mutex mutex;
    static auto& known = *new std::map<std::string, std::unique_ptr<SharedProgram>>;
    const size_t name_ends = text.starts_with("program ") ? text.find('(') : 0;
    const std::string key = text.substr(std::min(name_ends, text.size()));
    std::lock_guard lock(mutex);
    auto& slot = known[key];
    if (slot) return slot.get();
    try {
      npu::Program program = npu::parse(text);
      program.name = "compiled";
      *broken = npu::validate(program.desc());
      if (broken->empty()) slot = std::make_unique<SharedProgram>(program);
    } catch (const std::invalid_argument& error) {
      *broken = error.what();
    }
    return slot.get();
  }
};

npu_command_kind CompiledKernel::kind_of(const std::string& name) {
  if (name == "map") return NPU_MAP;
  if (name == "reduce") return NPU_REDUCE;
  if (name == "scan") return NPU_SCAN;
  if (name == "scatter") return NPU_SCATTER;
  if (name == "matmul") return NPU_MATMUL;
  if (name == "conv") return NPU_CONV;
  TORCH_CHECK_VALUE(false, "expected map, reduce, scan, scatter, matmul or conv, got ", name);
}

CompiledKernel::CompiledKernel(const Spec& spec) : tensors_(spec.tensors), numbers_(spec.numbers) {
  if (!spec.program.empty()) {
    std::string broken;
    program_ = SharedProgram::of(spec.program, &broken);
    TORCH_CHECK_VALUE(program_, "expected a valid program in the text form of docs/isa.md, got: ", broken, "\n",
                      spec.program);
  }
  TORCH_CHECK_VALUE(spec.sizes.size() <= NPU_MAX_RANK && spec.params.size() <= NPU_MAX_PARAMS &&
                        spec.operands.size() <= NPU_MAX_OPERANDS && spec.tensors > 0,
                    spec.name, ": expected at most ", NPU_MAX_RANK, " dimensions, ", NPU_MAX_PARAMS, " parameters and ",
                    NPU_MAX_OPERANDS, " operands and at least one tensor, got ", spec.sizes.size(), ", ",
                    spec.params.size(), ", ", spec.operands.size(), " and ", spec.tensors);
  const auto check_argument = [&](const Number& number) {
    TORCH_CHECK_VALUE(number.argument < spec.numbers, spec.name, ": expected at most ", spec.numbers,
                      " numbers in the call, got number ", number.argument);
  };
  command_.struct_size = sizeof(command_);
  command_.kind = spec.kind;
  command_.rank = static_cast<uint8_t>(spec.sizes.size());
  command_.inner_rank = static_cast<uint8_t>(spec.inner_rank);
  command_.operand_count = static_cast<uint32_t>(spec.operands.size());
  command_.param_count = static_cast<uint32_t>(spec.params.size());
  command_.label = intern(spec.name);
  for (size_t d = 0; d < spec.sizes.size(); ++d) {
    check_argument(spec.sizes[d]);
    command_.size[d] = spec.sizes[d].value.i;
    if (spec.sizes[d].argument >= 0) fixups_.push_back({kSize, static_cast<int>(d), spec.sizes[d].argument});
  }
  if (spec.kind == NPU_MATMUL) {
    check_argument(spec.k);
    command_.u.matmul.k = spec.k.value.i;
    if (spec.k.argument >= 0) fixups_.push_back({kDepth, 0, spec.k.argument});
  }
  for (const Number& number : spec.geometry) check_argument(number);
  if (spec.kind == NPU_CONV) set_geometry(spec);
  for (size_t k = 0; k < spec.params.size(); ++k) {
    check_argument(spec.params[k]);
    params_.push_back(spec.params[k].value);
    if (spec.params[k].argument >= 0) fixups_.push_back({kParam, static_cast<int>(k), spec.params[k].argument});
  }
  for (size_t k = 0; k < spec.operands.size(); ++k) {
    const Operand& given = spec.operands[k];
    TORCH_CHECK_VALUE(given.tensor >= 0 && given.tensor < spec.tensors && given.strides.size() == spec.sizes.size(),
                      spec.name, ": operand ", k, " expected one of ", spec.tensors, " tensors and ", spec.sizes.size(),
                      " strides, got tensor ", given.tensor, " and ", given.strides.size(), " strides");
    npu_operand operand{};
    check_argument(given.offset);
    operand.addr = static_cast<npu_addr>(given.offset.value.i);
    if (given.offset.argument >= 0) fixups_.push_back({static_cast<int>(k), -1, given.offset.argument});
    for (size_t d = 0; d < given.strides.size(); ++d) {
      check_argument(given.strides[d]);
      operand.stride[d] = given.strides[d].value.i;
      if (given.strides[d].argument >= 0) {
        fixups_.push_back({static_cast<int>(k), static_cast<int>(d), given.strides[d].argument});
      }
    }
    operands_.push_back(operand);
    operand_tensors_.push_back(given.tensor);
  }
}

void CompiledKernel::set_geometry(const Spec& spec) {
  const int rank = static_cast<int>(spec.sizes.size()) - 2;
  TORCH_CHECK_VALUE(rank >= 1 && rank <= 3 && spec.geometry.size() == 5 + 6 * static_cast<size_t>(rank) &&
                        spec.geometry[0].argument < 0,
                    spec.name,
                    ": expected 3 to 5 sizes, and 5 numbers and 6 for each spatial dimension for a conv, got ",
                    spec.sizes.size(), " and ", spec.geometry.size());
  command_.u.conv.mode = static_cast<uint32_t>(spec.geometry[0].value.u);
  command_.u.conv.spatial_rank = static_cast<uint32_t>(rank);
  for (int k = 0; k < 4 + 6 * rank; ++k) {
    const Number& number = spec.geometry[k + 1];
    geometry_field(command_.u.conv, k) = number.value.i;
    if (number.argument >= 0) fixups_.push_back({kGeometry, k, number.argument});
  }
}

// Room for one command. Not initialised: most kernels have a few operands, not sixty-four.
struct CompiledKernel::Call {
  npu_command command;
  npu_operand operands[NPU_MAX_OPERANDS];
  npu_scalar params[NPU_MAX_PARAMS];
  c10::DeviceIndex device;
};

bool CompiledKernel::complete(const at::Tensor* const* tensors, const npu_scalar* numbers, Call& call) const {
  npu_command& command = call.command;
  npu_operand* operands = call.operands;
  npu_scalar* params = call.params;
  command = command_;
  command.choice = choice_.load(std::memory_order_relaxed);
  std::copy(operands_.begin(), operands_.end(), operands);
  std::copy(params_.begin(), params_.end(), params);
  for (const Fixup& fixup : fixups_) {
    const npu_scalar value = numbers[fixup.argument];
    if (fixup.operand == kSize) {
      command.size[fixup.at] = value.i;
    } else if (fixup.operand == kParam) {
      params[fixup.at] = value;
    } else if (fixup.operand == kDepth) {
      command.u.matmul.k = value.i;
    } else if (fixup.operand == kGeometry) {
      geometry_field(command.u.conv, fixup.at) = value.i;
    } else if (fixup.at < 0) {
      operands[fixup.operand].addr = value.u;
    } else {
      operands[fixup.operand].stride[fixup.at] = value.i;
    }
  }
  // A REDUCE of empty rows still runs its row segments.
  const int kept = command.rank - (command.kind == NPU_REDUCE ? command.inner_rank : 0);
  if (std::count(command.size, command.size + kept, 0) != 0) return false;

  c10::DeviceIndex device = -1;
  for (size_t k = 0; k < operands_.size(); ++k) {
    const at::Tensor& tensor = *tensors[operand_tensors_[k]];
    npu_operand& operand = operands[k];
    operand.dtype = opaque_dtype(tensor.scalar_type(), command.label);
    if (tensor.is_privateuseone()) [[likely]] {
      operand.addr = address_of(tensor.const_data_ptr()) + operand.addr * tensor.element_size();
      device = tensor.device().index();
    } else {
      TORCH_CHECK(tensor.device().is_cpu() && tensor.dim() == 0, command.label,
                  ": expected npu tensors, or a CPU tensor without dimensions, got a tensor of ", tensor.sizes(),
                  " on ", tensor.device());
      operand.flags = NPU_OPERAND_IMMEDIATE;
      operand.addr = 0;
      std::memcpy(&operand.addr, tensor.const_data_ptr(), tensor.element_size());
    }
  }
  TORCH_CHECK(device >= 0, command.label, ": expected at least one npu tensor, got none");
  const npu_dtype compute = compute_dtype(static_cast<npu_dtype>(operands[0].dtype));
  if (command.kind == NPU_MATMUL) command.u.matmul.acc_dtype = compute;
  if (command.kind == NPU_CONV) command.u.conv.acc_dtype = compute;
  command.operands = operands;
  command.params = params;
  call.device = device;
  return true;
}

void CompiledKernel::run(const at::Tensor* const* tensors, const npu_scalar* numbers) const {
  Call call;
  if (!complete(tensors, numbers, call)) return;
  try {
    if (program_) call.command.program = program_->given.on(call.device);
    submit(call.device, call.command);
  } catch (const Unsupported&) {
    run_on_host(call.command, tensors);
  }
}

void CompiledKernel::set_choice(int choice) {
  TORCH_CHECK_VALUE(choice >= 0 && choice <= UINT8_MAX, name(), ": expected a choice of 0 to 255, got ", choice);
  choice_.store(static_cast<uint8_t>(choice), std::memory_order_relaxed);
}

std::vector<npu_choice> CompiledKernel::choices(const at::Tensor* const* tensors, const npu_scalar* numbers) const {
  std::vector<npu_choice> found(UINT8_MAX);
  uint32_t count = 0;
  Call call;
  if (!complete(tensors, numbers, call)) return {};
  const Device& target = device(call.device);
  const auto ask = npu::choices_of(*target.api);
  if (!ask) return {};
  call.command.choice = 0;
  try {
    if (program_) call.command.program = program_->given.on(call.device);
  } catch (const Unsupported&) {
    return {};
  }
  if (has_refused_program(call.command)) return {};
  const npu_status status = ask(target.handle, &call.command, found.data(), UINT8_MAX, &count);
  if (status == NPU_UNSUPPORTED) return {};
  check(target, status, name());
  found.resize(std::min<size_t>(count, found.size()));
  return found;
}

std::string CompiledKernel::signature(const at::Tensor* const* tensors, const npu_scalar* numbers) const {
  Call call;
  if (!complete(tensors, numbers, call)) return "";
  const npu_command& command = call.command;
  std::ostringstream text;
  text << npu::command_name(command.kind);
  for (int d = 0; d < command.rank; ++d) text << (d ? "x" : " ") << command.size[d];
  if (command.inner_rank) text << " inner=" << int(command.inner_rank);
  if (command.kind == NPU_MATMUL) text << " k=" << command.u.matmul.k;
  if (command.kind == NPU_CONV) {
    text << " mode=" << command.u.conv.mode;
    for (int k = 0; k < 4 + 6 * (command.rank - 2); ++k) {
      text << (k ? "," : " geometry=") << geometry_field(call.command.u.conv, k);
    }
  }
  for (uint32_t k = 0; k < command.operand_count; ++k) {
    const npu_operand& operand = command.operands[k];
    text << " " << npu::dtype_name(operand.dtype);
    if (operand.flags & NPU_OPERAND_IMMEDIATE) {
      text << "=";
      continue;
    }
    for (int d = 0; d < command.rank; ++d) text << (d ? "," : "[") << operand.stride[d];
    if (command.rank) text << "]";
  }
  if (program_) {
    uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a: the same in every process
    for (const char c : npu::to_text(program_->program.desc()))
      hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
    text << " program=" << std::hex << hash;
  }
  return text.str();
}

std::vector<int> CompiledKernel::written() const {
  const npu_program_desc desc = program_ ? program_->program.desc() : npu_program_desc{};
  std::set<int> found;
  for (const npu::Access& access : npu::accesses_of(command_, program_ ? &desc : nullptr)) {
    if (access.write) found.insert(operand_tensors_[access.operand]);
  }
  return {found.begin(), found.end()};
}

void CompiledKernel::run_on_host(const npu_command& command, const at::Tensor* const* tensors) const {
  fallback::note(std::string("compiled::") + command.label);
  const debug::FallbackScope logged(command.label);
  HostRun run{command, nullptr, {}, {}, {}, {}};
  run.command.program = nullptr;
  run.command.choice = 0;  // was the other driver's
  const npu_program_desc desc = program_ ? program_->program.desc() : npu_program_desc{};
  if (program_) run.program = &desc;
  std::vector<size_t> piece_of(tensors_, SIZE_MAX);
  c10::DeviceIndex device = -1;
  for (int k = 0; k < tensors_; ++k) {
    const at::Tensor& tensor = *tensors[k];
    const uint64_t size = tensor.storage().nbytes();
    if (!tensor.is_privateuseone() || size == 0) continue;
    device = tensor.device().index();
    const npu_addr begin = address_of(tensor.storage().data());
    const auto same = [&](const DevicePiece& piece) { return piece.begin == begin; };
    piece_of[k] = static_cast<size_t>(std::find_if(run.pieces.begin(), run.pieces.end(), same) - run.pieces.begin());
    if (piece_of[k] == run.pieces.size()) run.pieces.push_back({begin, size});
  }
  for (uint32_t k = 0; k < command.operand_count; ++k) run.piece_of.push_back(piece_of[operand_tensors_[k]]);
  run.read = [device](void* to, npu_addr from, uint64_t size) { read_bytes(device, to, from, size); };
  run.write = [device](npu_addr to, const void* from, uint64_t size) { write_bytes(device, to, from, size); };
  refuse_host_in_capture(current_stream_handle(device));
  std::string error;
  const npu_status status = torch_npu::run_on_host(run, &error);
  TORCH_CHECK_INDEX(status != NPU_ERROR_INDEX, command.label, ": ", error);
  TORCH_CHECK(status == NPU_OK, command.label, ": ", error);
}

std::string check_program(const std::string& text) {
  std::string broken;
  CompiledKernel::SharedProgram::of(text, &broken);
  return broken;
}

}  // namespace torch_npu
