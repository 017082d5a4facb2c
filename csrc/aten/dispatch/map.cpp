#include "csrc/aten/dispatch/map.h"

#include <c10/core/DynamicCast.h>

#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "csrc/aten/dispatch/complex.h"

namespace torch_npu {

namespace {

// Operands of one command, kept on the stack: most ops have two or three.
constexpr int kOperands = 16;

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

void set_number(npu_operand& operand, const at::TensorIteratorBase& iter, int arg, c10::ScalarType common,
                Numbers numbers) {
  const c10::ScalarType type = iter.dtype(arg);
  const void* data = iter.data_ptr(arg);  // host memory: a CPU tensor
  operand.flags = NPU_OPERAND_IMMEDIATE;
  operand.addr = 0;
  if (common == c10::ScalarType::Undefined || c10::isComplexType(common)) {
    common = type;
  }
  if (storage_dtype(common) == NPU_DTYPE_NONE || c10::isComplexType(type)) {
    throw Unsupported("dtype");
  }
  if (c10::isIntegralType(common, /*includeBool=*/true)) {
    operand.dtype = storage_dtype(common);
    if (type == c10::ScalarType::UInt64) {
      c10::cast_and_store<uint64_t>(common, &operand.addr, c10::fetch_and_cast<uint64_t>(type, data));
    } else {
      c10::cast_and_store<int64_t>(common, &operand.addr, c10::fetch_and_cast<int64_t>(type, data));
    }
    return;
  }
  const double value = c10::fetch_and_cast<double>(type, data);
  if (numbers == Numbers::kRounded) {
    operand.dtype = storage_dtype(common);
    c10::cast_and_store<double>(common, &operand.addr, value);
  } else {
    operand.dtype = NPU_F64;
    std::memcpy(&operand.addr, &value, sizeof(value));
  }
}

void set_immediate(npu_operand& operand, npu_dtype type, double value) {
  operand.flags = NPU_OPERAND_IMMEDIATE;
  operand.addr = 0;
  operand.dtype = type;
  if (type == NPU_F32) {
    const auto single = static_cast<float>(value);
    std::memcpy(&operand.addr, &single, sizeof(single));
  } else {
    std::memcpy(&operand.addr, &value, sizeof(value));
  }
}

// A number beside complex tensors: two immediates.
void set_complex_number(npu_operand* parts, const at::TensorIteratorBase& iter, int arg, c10::ScalarType common,
                        Numbers numbers) {
  const auto value = c10::fetch_and_cast<c10::complex<double>>(iter.dtype(arg), iter.data_ptr(arg));
  const npu_dtype type = numbers == Numbers::kRounded ? part_dtype(common) : NPU_F64;
  set_immediate(parts[0], type, value.real());
  set_immediate(parts[1], type, value.imag());
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

// A command over the iterator's index space. Its operands live in `operands`.
struct Built {
  npu_command command{};
  npu_operand operands[kOperands];
  uint8_t tensors[kOperands];  // the iterator's number of each operand's tensor
};

// Real and imaginary parts as two operands. Those of a real tensor are the tensor and zero.
void set_pair(npu_operand* parts, const at::TensorIteratorBase& iter, int arg, const char* label, const int* dims,
              int kept, c10::ScalarType common, Numbers numbers) {
  parts[0] = parts[1] = npu_operand{};
  if (arg >= iter.noutputs() && iter.is_cpu_scalar(arg)) {
    return set_complex_number(parts, iter, arg, common, numbers);
  }
  const bool is_complex = c10::isComplexType(iter.dtype(arg));
  const npu_dtype type = is_complex ? part_dtype(iter.dtype(arg)) : storage_dtype(iter.dtype(arg));
  if (type == NPU_DTYPE_NONE || (!is_complex && arg < iter.noutputs())) {
    throw Unsupported(label);
  }
  const auto strides = iter.strides(arg);
  const int64_t width = iter.element_size(arg) / (is_complex ? 2 : 1);
  parts[0].addr = reinterpret_cast<npu_addr>(iter.data_ptr(arg));
  parts[0].dtype = type;
  for (int d = 0; d < kept; ++d) {
    parts[0].stride[d] = strides[dims[d]] / width;
  }
  if (is_complex) {
    parts[1] = parts[0];
    parts[1].addr += width;
  } else {
    set_immediate(parts[1], NPU_F32, 0);
  }
}

// A complex tensor that gets what a program over pairs has as one number: its real part is stored, the other one is
// zero.
bool gets_real(const at::TensorIteratorBase& iter, int arg, uint32_t pairs) {
  return pairs != 0 && arg < iter.noutputs() && !(pairs >> arg & 1) && c10::isComplexType(iter.dtype(arg));
}

// dims[d] is the iterator's dimension that becomes dimension d of the command, outermost first. `common` is the type
// that PyTorch would round inputs to, or Undefined. `pairs`: see TypedProgram.
void build(Built& built, const at::TensorIteratorBase& iter, const char* label, const int* dims, int rank,
           c10::ScalarType common, Numbers numbers, uint32_t pairs = 0) {
  const npu_dtype rounded = storage_dtype(common);
  const int count = iter.ntensors();
  if (count + std::popcount(pairs) > kOperands) {
    throw Unsupported(label);
  }
  npu_command& command = built.command;
  command.struct_size = sizeof(npu_command);
  command.operands = built.operands;
  command.label = label;
  const auto shape = iter.shape();
  const int kept = std::min<int>(rank, NPU_MAX_RANK);
  command.rank = kept;
  for (int d = 0; d < kept; ++d) {
    command.size[d] = shape[dims[rank - kept + d]];
  }
  int next = 0;
  for (int arg = 0; arg < count; ++arg) {
    npu_operand& operand = built.operands[next];
    built.tensors[next++] = static_cast<uint8_t>(arg);
    if (pairs >> arg & 1) {
      set_pair(&operand, iter, arg, label, dims + rank - kept, kept, common, numbers);
      built.tensors[next++] = static_cast<uint8_t>(arg);
      continue;
    }
    operand = npu_operand{};
    if (arg >= iter.noutputs() && iter.is_cpu_scalar(arg)) {
      set_number(operand, iter, arg, common, numbers);
      continue;
    }
    operand.addr = reinterpret_cast<npu_addr>(iter.data_ptr(arg));
    const bool real = gets_real(iter, arg, pairs);
    const npu_dtype type = real ? part_dtype(iter.dtype(arg)) : storage_dtype(iter.dtype(arg));
    const bool fits = rounded == NPU_DTYPE_NONE ||
                      (arg < iter.noutputs() ? stores_like_cast(rounded, type) : loads_like_cast(type, rounded));
    if (type == NPU_DTYPE_NONE || !fits) {
      throw Unsupported(label);
    }
    operand.dtype = type;
    const auto strides = iter.strides(arg);
    const int64_t element = iter.element_size(arg) / (real ? 2 : 1);
    for (int d = 0; d < kept; ++d) {
      operand.stride[d] = strides[dims[rank - kept + d]] / element;
    }
  }
  command.operand_count = next;
}

// Dimensions beyond the contract's eight are walked here, one command per step.
void submit_outer(Built& built, const at::TensorIteratorBase& iter, const int* dims, int rank, int outer) {
  const auto device = iter.device(0).index();
  if (outer == 0) {
    submit(device, built.command);
    return;
  }
  const int dim = dims[outer - 1];
  Built step = built;
  step.command.operands = step.operands;
  for (int64_t i = 0; i < iter.shape()[dim]; ++i) {
    submit_outer(step, iter, dims, rank, outer - 1);
    for (uint32_t k = 0; k < step.command.operand_count; ++k) {
      if (!(step.operands[k].flags & NPU_OPERAND_IMMEDIATE)) {
        step.operands[k].addr += iter.strides(step.tensors[k])[dim];
      }
    }
  }
}

void set_params(npu_command& command, std::initializer_list<npu_scalar> params) {
  command.params = params.begin();
  command.param_count = static_cast<uint32_t>(params.size());
}

}  // namespace

npu::Program parse_for(npu_dtype compute, const std::string& text) {
  npu::Program program = npu::parse(text);
  if (!is_float(compute) && !npu::validate(program.desc()).empty()) {
    throw Unsupported("dtype");
  }
  return program;
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
  const int rank = iter.ndim();
  int dims[64];
  for (int d = 0; d < rank; ++d) {
    dims[d] = rank - 1 - d;  // the iterator's dimension 0 is the innermost
  }
  Built built;
  build(built, iter, label, dims, rank, common, numbers, pairs);
  built.command.kind = NPU_MAP;
  built.command.program = program.on(iter.device(0).index());
  set_params(built.command, params);
  submit_outer(built, iter, dims, rank, std::max(rank - NPU_MAX_RANK, 0));
  for (int arg = 0; arg < iter.noutputs(); ++arg) {
    if (gets_real(iter, arg, pairs)) {
      imag_part(iter.tensor(arg)).zero_();
    }
  }
}

void launch_reduce(at::TensorIteratorBase& iter, DeviceProgram& program, const char* label,
                   std::initializer_list<npu_scalar> params) {
  const int rank = iter.ndim();
  const auto out_strides = iter.strides(0);
  int dims[64];
  int kept = 0;
  for (int d = rank - 1; d >= 0; --d) {
    if (out_strides[d] != 0 || iter.shape()[d] == 1) {
      dims[kept++] = d;
    }
  }
  int next = kept;
  for (int d = rank - 1; d >= 0; --d) {
    if (!(out_strides[d] != 0 || iter.shape()[d] == 1)) {
      dims[next++] = d;
    }
  }
  const int inner = rank - kept;
  if (inner > NPU_MAX_RANK - 1) {
    throw Unsupported(label);
  }
  Built built;
  build(built, iter, label, dims, rank, c10::ScalarType::Undefined, Numbers::kCompute);
  npu_command& command = built.command;
  command.kind = NPU_REDUCE;
  command.inner_rank = inner;
  if (inner == 0) {  // every folded dimension has one element: fold over a dimension of size 1
    if (command.rank == NPU_MAX_RANK) {
      throw Unsupported(label);
    }
    command.size[command.rank++] = 1;
    command.inner_rank = 1;
  }
  command.program = program.on(iter.device(0).index());
  set_params(command, params);
  submit_outer(built, iter, dims, rank, std::max(rank - NPU_MAX_RANK, 0));
}

}  // namespace torch_npu
