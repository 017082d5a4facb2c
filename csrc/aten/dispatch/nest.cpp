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

Nest::Nest(npu_command_kind kind, const char* label, at::IntArrayRef sizes, int inner_rank) {
  if (sizes.size() > NPU_MAX_RANK) {
    throw Unsupported(label);
  }
  command_.struct_size = sizeof(command_);
  command_.kind = kind;
  command_.label = label;
  command_.rank = static_cast<uint8_t>(sizes.size());
  command_.inner_rank = static_cast<uint8_t>(inner_rank);
  std::copy(sizes.begin(), sizes.end(), command_.size);
  command_.operands = operands_;
  command_.params = params_;
}

npu_dtype moving_dtype(c10::ScalarType type, Part part, const char* label) {
  if (part == Part::kWhole || !c10::isComplexType(type)) {
    return opaque_dtype(type, label);
  }
  return numeric_dtype(c10::toRealValueType(type), label);
}

Nest::Nest(npu_command_kind kind, const char* label, const at::TensorIteratorBase& iter, Part part)
    : Nest(kind, label, at::DimVector(iter.shape().rbegin(), iter.shape().rend())) {
  // The iterator's dimension 0 is the innermost.
  const int rank = command_.rank;
  for (int arg = 0; arg < iter.ntensors(); ++arg) {
    TORCH_INTERNAL_ASSERT(command_.operand_count < kOperands);
    npu_operand& operand = operands_[command_.operand_count++];
    operand = npu_operand{};
    operand.dtype = moving_dtype(iter.dtype(arg), part, label);
    operand.addr = reinterpret_cast<npu_addr>(iter.data_ptr(arg));
    const bool split = part != Part::kWhole && c10::isComplexType(iter.dtype(arg));
    const int64_t width = iter.element_size(arg) / (split ? 2 : 1);
    operand.addr += split && part == Part::kImag ? width : 0;
    const auto strides = iter.strides(arg);
    for (int d = 0; d < rank; ++d) {
      operand.stride[d] = strides[rank - 1 - d] / width;
    }
  }
  device_ = iter.device(0).index();
}

Nest& Nest::with(const at::Tensor& tensor, npu_dtype type, at::IntArrayRef strides, int64_t offset) {
  TORCH_INTERNAL_ASSERT(strides.size() == command_.rank && command_.operand_count < kOperands, command_.label,
                        ": operand ", command_.operand_count);
  npu_operand& operand = operands_[command_.operand_count++];
  operand = npu_operand{};
  operand.dtype = type;
  operand.addr = reinterpret_cast<npu_addr>(tensor.const_data_ptr()) + offset * tensor.element_size();
  std::copy(strides.begin(), strides.end(), operand.stride);
  device_ = tensor.device().index();
  return *this;
}

Nest& Nest::with(const at::Tensor& tensor, at::IntArrayRef strides, int64_t offset) {
  return with(tensor, opaque_dtype(tensor.scalar_type(), command_.label), strides, offset);
}

Nest& Nest::with(const at::Tensor& tensor) {
  return with(tensor, tensor.strides());
}

Nest& Nest::scalar(npu_scalar value) {
  TORCH_INTERNAL_ASSERT(command_.param_count < NPU_MAX_PARAMS);
  params_[command_.param_count++] = value;
  return *this;
}

Nest& Nest::integer(int64_t value) {
  npu_scalar bits;
  bits.i = value;
  return scalar(bits);
}

Nest& Nest::integers(at::IntArrayRef values) {
  for (const int64_t value : values) integer(value);
  return *this;
}

Nest& Nest::number(double value) {
  npu_scalar bits;
  bits.f = value;
  return scalar(bits);
}

bool Nest::no_points() const {
  const int rank = command_.kind == NPU_REDUCE ? command_.rank - command_.inner_rank : command_.rank;
  return std::find(command_.size, command_.size + rank, 0) != command_.size + rank;
}

void Nest::run(DeviceProgram& program) {
  if (no_points()) return;
  command_.program = program.on(device_);
  submit(device_, command_);
}

Nest& Nest::contract(int64_t k, npu_dtype accumulator) {
  command_.u.matmul.k = k;
  command_.u.matmul.acc_dtype = accumulator;
  return *this;
}

void Nest::run() {
  if (no_points()) return;
  submit(device_, command_);
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

std::string per_dimension(int64_t count, const std::string& lines) {
  std::string out;
  for (int64_t d = 0; d < count; ++d) {
    out += replace_all(lines, "{d}", std::to_string(d));
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
