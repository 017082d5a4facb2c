#include "csrc/aten/dispatch/command.h"

#include <algorithm>
#include <bit>

namespace torch_npu {

Command::Command(npu_command_kind kind, const char* label) {
  command_.struct_size = sizeof(command_);
  command_.kind = kind;
  command_.label = label;
  command_.operands = operands_;
  command_.params = params_;
}

Command::Command(npu_command_kind kind, const char* label, at::IntArrayRef sizes, int inner_rank)
    : Command(kind, label) {
  set_space(sizes, inner_rank);
}

Command::Command(npu_command_kind kind, const char* label, const at::TensorIteratorBase& iter, int64_t parts)
    : Command(kind, label) {
  const int rank = iter.ndim();
  if (rank + (parts > 1) > NPU_MAX_RANK) refuse();
  for (int d = 0; d < rank; ++d) command_.size[d] = iter.shape()[rank - 1 - d];  // its dimension 0 is the innermost
  if (parts > 1) command_.size[rank] = parts;
  command_.rank = static_cast<uint8_t>(rank + (parts > 1));
  device_ = iter.device(0).index();
}

void Command::set_space(at::IntArrayRef sizes, int inner_rank) {
  if (sizes.size() > NPU_MAX_RANK) refuse();
  command_.rank = static_cast<uint8_t>(sizes.size());
  command_.inner_rank = static_cast<uint8_t>(inner_rank);
  std::copy(sizes.begin(), sizes.end(), command_.size);
}

npu_operand& Command::add(const at::Tensor& tensor) {
  const npu_dtype type = storage_dtype(tensor.scalar_type());
  if (type == NPU_DTYPE_NONE || tensor.is_conj() || tensor.is_neg()) refuse();
  npu_operand& operand = add(tensor.data_ptr(), type);
  const auto strides = tensor.strides();
  if (strides.size() > NPU_MAX_RANK) refuse();
  std::copy(strides.begin(), strides.end(), operand.stride);
  device_ = tensor.device().index();
  return operand;
}

npu_operand& Command::add(const at::TensorIteratorBase& iter, int arg, npu_dtype type, int64_t words) {
  npu_operand& operand = add(iter.data_ptr(arg), type);
  const int rank = iter.ndim();
  const int64_t width = iter.element_size(arg) / words;
  const auto strides = iter.strides(arg);
  for (int d = 0; d < rank; ++d) operand.stride[d] = strides[rank - 1 - d] / width;
  return operand;
}

npu_operand& Command::immediate(npu_dtype type, uint64_t bits) {
  npu_operand& operand = next();
  operand.flags = NPU_OPERAND_IMMEDIATE;
  operand.addr = bits;
  operand.dtype = type;
  return operand;
}

npu_operand& Command::immediate(double value) {
  return immediate(NPU_F64, std::bit_cast<uint64_t>(value));
}

void Command::param(npu_scalar value) {
  if (command_.param_count == NPU_MAX_PARAMS) refuse();
  params_[command_.param_count++] = value;
}

}  // namespace torch_npu
