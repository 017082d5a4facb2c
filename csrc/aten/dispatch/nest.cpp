#include "csrc/aten/dispatch/nest.h"

#include <ATen/ExpandUtils.h>

#include <algorithm>

namespace torch_npu {

npu_dtype bits_dtype(size_t element_size, const char* label) {
  switch (element_size) {
    case 1:
      return NPU_U8;
    case 2:
      return NPU_U16;
    case 4:
      return NPU_U32;
    case 8:
      return NPU_U64;
    default:
      throw Unsupported(label);
  }
}

npu_dtype opaque_dtype(c10::ScalarType type, const char* label) {
  const npu_dtype known = storage_dtype(type);
  return known != NPU_DTYPE_NONE ? known : bits_dtype(c10::elementSize(type), label);
}

npu_dtype numeric_dtype(c10::ScalarType type, const char* label) {
  const npu_dtype known = storage_dtype(type);
  if (known == NPU_DTYPE_NONE) {
    throw Unsupported(label);
  }
  return known;
}

npu_dtype moving_dtype(c10::ScalarType type, Part part, const char* label) {
  if (part == Part::kWhole || !c10::isComplexType(type)) {
    return opaque_dtype(type, label);
  }
  return numeric_dtype(c10::toRealValueType(type), label);
}

Nest::Nest(npu_command_kind kind, const char* label, const at::TensorIteratorBase& iter, Part part)
    : command_(kind, label, iter) {
  for (int arg = 0; arg < iter.ntensors(); ++arg) {
    const bool split = part != Part::kWhole && c10::isComplexType(iter.dtype(arg));
    npu_operand& operand = command_.add(iter, arg, moving_dtype(iter.dtype(arg), part, label), split ? 2 : 1);
    operand.addr += split && part == Part::kImag ? iter.element_size(arg) / 2 : 0;
  }
}

Nest& Nest::with(const at::Tensor& tensor, npu_dtype type, at::IntArrayRef strides, int64_t offset) {
  TORCH_INTERNAL_ASSERT(strides.size() == command_->rank, command_->label, ": operand ", command_->operand_count);
  npu_operand& operand = command_.add(tensor.const_data_ptr(), type);
  operand.addr += offset * tensor.element_size();
  std::copy(strides.begin(), strides.end(), operand.stride);
  // Without SCATTER, a chip walks what could be stored to (docs/design/legalisation.md): so say how far that goes.
  if (command_->kind == NPU_SCATTER && offset == 0 && tensor.is_non_overlapping_and_dense()) {
    operand.limit = static_cast<int64_t>(tensor.nbytes()) / npu::dtype_size(type);
  }
  command_.set_device(tensor.device().index());
  return *this;
}

Nest& Nest::with(const at::Tensor& tensor, at::IntArrayRef strides, int64_t offset) {
  return with(tensor, opaque_dtype(tensor.scalar_type(), command_->label), strides, offset);
}

Nest& Nest::with(const at::Tensor& tensor) {
  return with(tensor, tensor.strides());
}

Nest& Nest::integers(at::IntArrayRef values) {
  for (const int64_t value : values) integer(value);
  return *this;
}

bool Nest::no_points() const {
  const int rank = command_->kind == NPU_REDUCE ? command_->rank - command_->inner_rank : command_->rank;
  return std::find(command_->size, command_->size + rank, 0) != command_->size + rank;
}

void Nest::run(DeviceProgram& program) {
  if (!no_points()) command_.run(program);
}

Nest& Nest::contract(int64_t k, npu_dtype accumulator) {
  command_->u.matmul.k = k;
  command_->u.matmul.acc_dtype = accumulator;
  return *this;
}

void Nest::run() {
  if (!no_points()) command_.run();
}

DeviceProgram& ProgramFamily::get(int64_t key, npu_dtype compute, const std::function<std::string()>& text) {
  std::lock_guard lock(mutex_);
  DeviceProgram*& program = programs_[{key, compute}];
  if (!program) {
    program = new DeviceProgram(parse_for(compute, replace_all(text(), "$t", npu::dtype_name(compute))));
  }
  return *program;
}

at::DimVector expanded_strides(const at::Tensor& tensor, at::IntArrayRef sizes) {
  return at::inferExpandGeometry_dimvector(tensor.sizes(), tensor.strides(), sizes).strides;
}

std::string per_dimension(int64_t count, const std::string& text, const std::string& between) {
  std::string out;
  for (int64_t d = 0; d < count; ++d) {
    out += (d ? between : "") + replace_all(text, "{d}", std::to_string(d));
  }
  return out;
}

std::string replace_all(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

}  // namespace torch_npu
