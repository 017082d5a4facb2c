#include "csrc/aten/dispatch/map.h"

#include <c10/core/DynamicCast.h>

#include <bit>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "csrc/aten/dispatch/command.h"
#include "csrc/aten/dispatch/complex.h"
#include "support/program/formula.h"

namespace torch_npu {

namespace {

std::string replace_type(const char* text, const char* type) {
  std::string out;
  for (const char* p = text; *p; ++p) {
    if (p[0] == '$' && p[1] == 't') {
      out += type;
      ++p;
    } else {
      out += *p;
    }
  }
  return out;
}

void add_number(Command& command, const at::TensorIteratorBase& iter, int arg, c10::ScalarType common,
                Numbers numbers) {
  const c10::ScalarType type = iter.dtype(arg);
  const void* data = iter.data_ptr(arg);  // host memory: a CPU tensor
  if (common == c10::ScalarType::Undefined || c10::isComplexType(common)) {
    common = type;
  }
  if (storage_dtype(common) == NPU_DTYPE_NONE || c10::isComplexType(type)) {
    throw Unsupported("dtype");
  }
  if (c10::isIntegralType(common, /*includeBool=*/true)) {
    npu_operand& operand = command.immediate(storage_dtype(common), 0);
    if (type == c10::ScalarType::UInt64) {
      c10::cast_and_store<uint64_t>(common, &operand.addr, c10::fetch_and_cast<uint64_t>(type, data));
    } else {
      c10::cast_and_store<int64_t>(common, &operand.addr, c10::fetch_and_cast<int64_t>(type, data));
    }
    return;
  }
  const double value = c10::fetch_and_cast<double>(type, data);
  if (numbers == Numbers::kRounded) {
    c10::cast_and_store<double>(common, &command.immediate(storage_dtype(common), 0).addr, value);
  } else {
    command.immediate(value);
  }
}

// A number beside complex tensors: two immediates.
void add_complex_number(Command& command, const at::TensorIteratorBase& iter, int arg, c10::ScalarType common,
                        Numbers numbers) {
  const auto value = c10::fetch_and_cast<c10::complex<double>>(iter.dtype(arg), iter.data_ptr(arg));
  for (const double part : {value.real(), value.imag()}) {
    if (numbers == Numbers::kRounded && part_dtype(common) == NPU_F32) {
      command.immediate(NPU_F32, std::bit_cast<uint32_t>(static_cast<float>(part)));
    } else {
      command.immediate(part);
    }
  }
}

// PyTorch rounds each input to the common type before it computes. A load does that on its own, unless the common type
// is narrower than the type it computes in and the input's type does not fit it (an int64 beside a half).
bool loads_like_cast(npu_dtype type, npu_dtype common) {
  if (type == common || compute_dtype(common) == common) {
    return true;
  }
  switch (common) {
    case NPU_F16:
    case NPU_BF16:
      return type == NPU_BOOL || type == NPU_U8 || type == NPU_I8;
    case NPU_I16:
      return type == NPU_BOOL || type == NPU_U8 || type == NPU_I8;
    case NPU_U16:
    case NPU_U32:
      return type == NPU_BOOL || type == NPU_U8;
    default:
      return type == NPU_BOOL;
  }
}

// PyTorch rounds a result to the common type before it converts it to another one that was asked for with out=.
bool stores_like_cast(npu_dtype common, npu_dtype type) {
  return type == common || type == NPU_BOOL || compute_dtype(common) == common;
}

// The iterator's dimensions in the order in which a command has them, outermost first: those beyond the contract's
// eight are walked by the host.
struct Dims {
  int order[64];
  int rank = 0;

  int outer() const { return std::max(rank - NPU_MAX_RANK, 0); }
  int kept() const { return rank - outer(); }
  int of_command(int d) const { return order[outer() + d]; }
};

npu_operand& add_tensor(Command& command, const at::TensorIteratorBase& iter, int arg, const Dims& dims, npu_dtype type,
                        int64_t words) {
  npu_operand& operand = command.add(iter.data_ptr(arg), type);
  const auto strides = iter.strides(arg);
  const int64_t width = iter.element_size(arg) / words;
  for (int d = 0; d < dims.kept(); ++d) {
    operand.stride[d] = strides[dims.of_command(d)] / width;
  }
  return operand;
}

// Real and imaginary parts as two operands. Those of a real tensor are the tensor and zero.
void add_pair(Command& command, const at::TensorIteratorBase& iter, int arg, const Dims& dims, c10::ScalarType common,
              Numbers numbers) {
  if (arg >= iter.noutputs() && iter.is_cpu_scalar(arg)) {
    return add_complex_number(command, iter, arg, common, numbers);
  }
  const bool is_complex = c10::isComplexType(iter.dtype(arg));
  const npu_dtype type = is_complex ? part_dtype(iter.dtype(arg)) : storage_dtype(iter.dtype(arg));
  if (type == NPU_DTYPE_NONE || (!is_complex && arg < iter.noutputs())) {
    throw Unsupported(command->label);
  }
  add_tensor(command, iter, arg, dims, type, is_complex ? 2 : 1);
  if (is_complex) {
    add_tensor(command, iter, arg, dims, type, 2).addr += iter.element_size(arg) / 2;
  } else {
    command.immediate(NPU_F32, 0);
  }
}

// A complex tensor that gets what a program over pairs has as one number: its real part is stored, the other one is
// zero.
bool gets_real(const at::TensorIteratorBase& iter, int arg, uint32_t pairs) {
  return pairs != 0 && arg < iter.noutputs() && !(pairs >> arg & 1) && c10::isComplexType(iter.dtype(arg));
}

// The index space and the operands. `common` is the type that PyTorch would round inputs to, or Undefined. `pairs`: see
// TypedProgram.
void build(Command& command, const at::TensorIteratorBase& iter, const Dims& dims, c10::ScalarType common,
           Numbers numbers, uint32_t pairs = 0) {
  const npu_dtype rounded = storage_dtype(common);
  const auto shape = iter.shape();
  command->rank = static_cast<uint8_t>(dims.kept());
  for (int d = 0; d < dims.kept(); ++d) {
    command->size[d] = shape[dims.of_command(d)];
  }
  for (int arg = 0; arg < iter.ntensors(); ++arg) {
    if (pairs >> arg & 1) {
      add_pair(command, iter, arg, dims, common, numbers);
      continue;
    }
    if (arg >= iter.noutputs() && iter.is_cpu_scalar(arg)) {
      add_number(command, iter, arg, common, numbers);
      continue;
    }
    const bool real = gets_real(iter, arg, pairs);
    const npu_dtype type = real ? part_dtype(iter.dtype(arg)) : storage_dtype(iter.dtype(arg));
    const bool fits = rounded == NPU_DTYPE_NONE ||
                      (arg < iter.noutputs() ? stores_like_cast(rounded, type) : loads_like_cast(type, rounded));
    if (type == NPU_DTYPE_NONE || !fits) {
      throw Unsupported(command->label);
    }
    add_tensor(command, iter, arg, dims, type, real ? 2 : 1);
  }
}

// One command for each step of the dimensions that it has no room for.
void submit_outer(Command& command, const at::TensorIteratorBase& iter, const Dims& dims, int outer, uint32_t pairs) {
  if (outer == 0) {
    return command.run();
  }
  const int dim = dims.order[outer - 1];
  const int64_t size = iter.shape()[dim];
  const auto move = [&](int64_t steps) {
    int next = 0;
    for (int arg = 0; arg < iter.ntensors(); ++arg) {
      for (int part = 0; part < 1 + static_cast<int>(pairs >> arg & 1); ++part) {
        npu_operand& operand = command.operand(next++);
        operand.addr += operand.flags & NPU_OPERAND_IMMEDIATE ? 0 : iter.strides(arg)[dim] * steps;
      }
    }
  };
  for (int64_t i = 0; i < size; ++i) {
    submit_outer(command, iter, dims, outer - 1, pairs);
    move(1);
  }
  move(-size);
}

void launch(Command& command, const at::TensorIteratorBase& iter, const Dims& dims, DeviceProgram& program,
            std::initializer_list<npu_scalar> params, uint32_t pairs = 0) {
  const auto device = iter.device(0).index();
  command.set_device(device);
  command->program = program.on(device);
  for (const npu_scalar& param : params) command.param(param);
  submit_outer(command, iter, dims, dims.outer(), pairs);
}

}  // namespace

npu::Program parse_for(npu_dtype compute, const std::string& text) {
  npu::Program program = npu::parse(npu::formula_text(text, npu::dtype_name(compute)));
  if (!is_float(compute) && !npu::validate(program.desc()).empty()) {
    throw Unsupported("dtype");
  }
  return program;
}

const char* TypedProgram::kept(std::string text) {
  static auto& texts = *new std::deque<std::string>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return texts.emplace_back(std::move(text)).c_str();
}

DeviceProgram& TypedProgram::make(npu_dtype compute, const char* text, std::atomic<DeviceProgram*>& slot) {
  if (!text) {
    throw Unsupported("dtype");
  }
  auto* made = new DeviceProgram(parse_for(compute, replace_type(text, npu::dtype_name(compute))));
  DeviceProgram* expected = nullptr;
  if (!slot.compare_exchange_strong(expected, made, std::memory_order_acq_rel)) {
    delete made;
    return *expected;
  }
  return *made;
}

namespace {

npu::Program with_rounding(const npu::Program& program, npu_dtype compute, npu_dtype storage) {
  npu::Program out = program;
  out.instrs.clear();
  std::vector<uint16_t> moved;
  const auto id = [&](uint16_t old) { return old == NPU_NO_VALUE ? old : moved[old]; };
  const auto last = [&] { return static_cast<uint16_t>(out.instrs.size() - 1); };
  const auto round = [&](uint16_t value) {
    npu_instr cast{};
    cast.op = NPU_OP_CAST;
    cast.dtype = static_cast<uint8_t>(compute);
    cast.a = value;
    cast.b = cast.c = cast.mask = NPU_NO_VALUE;
    cast.imm = storage;
    out.instrs.push_back(cast);
  };
  for (npu_instr instr : program.instrs) {
    instr.a = id(instr.a);
    instr.b = id(instr.b);
    instr.c = id(instr.c);
    instr.mask = id(instr.mask);
    if (instr.op == NPU_OP_STORE && out.instrs[instr.a].dtype == compute) {
      round(instr.a);
      instr.a = last();
    }
    out.instrs.push_back(instr);
    if (instr.op == NPU_OP_LOAD && instr.dtype == compute) {
      round(last());
    }
    moved.push_back(last());
  }
  return out;
}

}  // namespace

DeviceProgram& TypedProgram::rounded(npu_dtype compute, npu_dtype storage) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::tuple<const TypedProgram*, int, int>, DeviceProgram*>;
  if (!has(compute)) {
    throw Unsupported("dtype");
  }
  const std::lock_guard lock(mutex);
  DeviceProgram*& program = known[{this, compute, storage}];
  if (!program) {
    const auto plain = parse_for(compute, replace_type(text(compute), npu::dtype_name(compute)));
    program = new DeviceProgram(with_rounding(plain, compute, storage));
  }
  return *program;
}

bool converts_like_cast(const at::TensorIteratorBase& iter) {
  const npu_dtype common = storage_dtype(iter.common_dtype());
  if (compute_dtype(common) == common) {
    return true;
  }
  for (int arg = 0; arg < iter.ntensors(); ++arg) {
    const npu_dtype type = storage_dtype(iter.dtype(arg));
    const bool output = arg < iter.noutputs();
    if (!output && iter.is_cpu_scalar(arg)) {
      continue;
    }
    if (!(output ? stores_like_cast(common, type) : loads_like_cast(type, common))) {
      return false;
    }
  }
  return true;
}

void launch_map(at::TensorIteratorBase& iter, DeviceProgram& program, const char* label,
                std::initializer_list<npu_scalar> params, Numbers numbers) {
  launch_map_as(iter.common_dtype(), iter, program, label, params, numbers);
}

void launch_map_as(c10::ScalarType common, at::TensorIteratorBase& iter, TypedProgram& program, const char* label,
                   std::initializer_list<npu_scalar> params, Numbers numbers) {
  const npu_dtype type = storage_dtype(common);
  if (type != NPU_DTYPE_NONE) {
    return launch_map_as(common, iter, program.of(compute_dtype(type)), label, params, numbers);
  }
  const npu_dtype part = part_dtype(common);
  if (part == NPU_DTYPE_NONE) {
    throw Unsupported(label);
  }
  launch_map_as(common, iter, program.of_complex(part), label, params, numbers, program.pairs());
}

void launch_map_as(c10::ScalarType common, at::TensorIteratorBase& iter, DeviceProgram& program, const char* label,
                   std::initializer_list<npu_scalar> params, Numbers numbers, uint32_t pairs) {
  if (iter.numel() == 0) {
    return;
  }
  Dims dims;
  for (int d = iter.ndim() - 1; d >= 0; --d) {
    dims.order[dims.rank++] = d;  // the iterator's dimension 0 is the innermost
  }
  Command command(NPU_MAP, label);
  build(command, iter, dims, common, numbers, pairs);
  launch(command, iter, dims, program, params, pairs);
  for (int arg = 0; arg < iter.noutputs(); ++arg) {
    if (gets_real(iter, arg, pairs)) {
      imag_part(iter.tensor(arg)).zero_();
    }
  }
}

void launch_reduce(at::TensorIteratorBase& iter, DeviceProgram& program, const char* label,
                   std::initializer_list<npu_scalar> params) {
  const auto folded = [&](int d) { return iter.strides(0)[d] == 0 && iter.shape()[d] != 1; };
  Dims dims;
  int inner = 0;
  for (const bool inside : {false, true}) {
    for (int d = iter.ndim() - 1; d >= 0; --d) {
      if (folded(d) != inside) continue;
      dims.order[dims.rank++] = d;
      inner += inside;
    }
  }
  if (inner > NPU_MAX_RANK - 1) {
    throw Unsupported(label);
  }
  Command command(NPU_REDUCE, label);
  build(command, iter, dims, c10::ScalarType::Undefined, Numbers::kCompute);
  command->inner_rank = static_cast<uint8_t>(inner);
  if (inner == 0) {  // every folded dimension has one element: fold over a dimension of size 1
    if (command->rank == NPU_MAX_RANK) {
      throw Unsupported(label);
    }
    command->size[command->rank++] = 1;
    command->inner_rank = 1;
  }
  launch(command, iter, dims, program, params);
}

}  // namespace torch_npu
