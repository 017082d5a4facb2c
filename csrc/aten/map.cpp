#include "csrc/aten/map.h"

#include <c10/core/DynamicCast.h>

#include <cstring>
#include <string>

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
  if (common == c10::ScalarType::Undefined) {
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
};

// dims[d] is the iterator's dimension that becomes dimension d of the command, outermost first. `common` is the type
// that PyTorch would round inputs to, or Undefined.
void build(Built& built, const at::TensorIteratorBase& iter, const char* label, const int* dims, int rank,
           c10::ScalarType common, Numbers numbers) {
  const npu_dtype rounded = storage_dtype(common);
  const int count = iter.ntensors();
  if (count > kOperands) {
    throw Unsupported(label);
  }
  npu_command& command = built.command;
  command.struct_size = sizeof(npu_command);
  command.operand_count = count;
  command.operands = built.operands;
  command.label = label;
  const auto shape = iter.shape();
  const int kept = std::min<int>(rank, NPU_MAX_RANK);
  command.rank = kept;
  for (int d = 0; d < kept; ++d) {
    command.size[d] = shape[dims[rank - kept + d]];
  }
  for (int arg = 0; arg < count; ++arg) {
    npu_operand& operand = built.operands[arg];
    operand = npu_operand{};
    if (arg >= iter.noutputs() && iter.is_cpu_scalar(arg)) {
      set_number(operand, iter, arg, common, numbers);
      continue;
    }
    operand.addr = reinterpret_cast<npu_addr>(iter.data_ptr(arg));
    const npu_dtype type = storage_dtype(iter.dtype(arg));
    const bool fits = rounded == NPU_DTYPE_NONE ||
                      (arg < iter.noutputs() ? stores_like_cast(rounded, type) : loads_like_cast(type, rounded));
    if (type == NPU_DTYPE_NONE || !fits) {
      throw Unsupported(label);
    }
    operand.dtype = type;
    const auto strides = iter.strides(arg);
    const int64_t element = iter.element_size(arg);
    for (int d = 0; d < kept; ++d) {
      operand.stride[d] = strides[dims[rank - kept + d]] / element;
    }
  }
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
    for (int arg = 0; arg < iter.ntensors(); ++arg) {
      if (!(step.operands[arg].flags & NPU_OPERAND_IMMEDIATE)) {
        step.operands[arg].addr += iter.strides(arg)[dim];
      }
    }
  }
}

void set_params(npu_command& command, std::initializer_list<npu_scalar> params) {
  command.params = params.begin();
  command.param_count = static_cast<uint32_t>(params.size());
}

}  // namespace

Kernel& TypedKernel::make(npu_dtype compute) {
  if (!has(compute)) {
    throw Unsupported("dtype");
  }
  auto* made = new Kernel(npu::parse(replace_type(text(compute), npu::dtype_name(compute))));
  Kernel* expected = nullptr;
  if (!kernels_[compute].compare_exchange_strong(expected, made, std::memory_order_acq_rel)) {
    delete made;
    return *expected;
  }
  return *made;
}

npu_dtype iterator_compute_dtype(const at::TensorIteratorBase& iter) {
  const npu_dtype type = storage_dtype(iter.common_dtype());
  if (type == NPU_DTYPE_NONE) {
    throw Unsupported("dtype");
  }
  return compute_dtype(type);
}

void launch_map(at::TensorIteratorBase& iter, Kernel& kernel, const char* label,
                std::initializer_list<npu_scalar> params, Numbers numbers) {
  launch_map_as(iter.common_dtype(), iter, kernel, label, params, numbers);
}

void launch_map_as(c10::ScalarType common, at::TensorIteratorBase& iter, Kernel& kernel, const char* label,
                   std::initializer_list<npu_scalar> params, Numbers numbers) {
  if (iter.numel() == 0) {
    return;
  }
  const int rank = iter.ndim();
  int dims[64];
  for (int d = 0; d < rank; ++d) {
    dims[d] = rank - 1 - d;  // the iterator's dimension 0 is the innermost
  }
  Built built;
  build(built, iter, label, dims, rank, common, numbers);
  built.command.kind = NPU_MAP;
  built.command.program = kernel.on(iter.device(0).index());
  set_params(built.command, params);
  submit_outer(built, iter, dims, rank, std::max(rank - NPU_MAX_RANK, 0));
}

void launch_reduce(at::TensorIteratorBase& iter, Kernel& kernel, const char* label,
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
  command.program = kernel.on(iter.device(0).index());
  set_params(command, params);
  submit_outer(built, iter, dims, rank, std::max(rank - NPU_MAX_RANK, 0));
}

}  // namespace torch_npu
