// The parts of pointwise ops that the op table (codegen/pointwise.ops) cannot say.
#include "csrc/aten/dispatch/pointwise.h"

namespace torch_npu {

bool same_complex(const at::TensorIteratorBase& iter) {
  for (int arg = 0; arg < iter.ntensors(); ++arg) {
    if (iter.dtype(arg) != iter.common_dtype() || iter.is_cpu_scalar(arg)) {
      return false;
    }
  }
  return iter.ndim() < NPU_MAX_RANK;
}

void launch_parts(const at::TensorIteratorBase& iter, DeviceProgram& program, const char* label) {
  if (iter.numel() == 0) {
    return;
  }
  const int rank = iter.ndim();
  npu_operand operands[4] = {};
  TORCH_INTERNAL_ASSERT(iter.ntensors() <= 4);
  npu_command command{};
  command.struct_size = sizeof(command);
  command.kind = NPU_MAP;
  command.rank = static_cast<uint8_t>(rank + 1);
  command.operands = operands;
  command.operand_count = iter.ntensors();
  command.label = label;
  command.size[rank] = 2;
  for (int d = 0; d < rank; ++d) {
    command.size[d] = iter.shape()[rank - 1 - d];  // the iterator's dimension 0 is the innermost
  }
  for (int arg = 0; arg < iter.ntensors(); ++arg) {
    operands[arg].addr = reinterpret_cast<npu_addr>(iter.data_ptr(arg));
    operands[arg].dtype = part_dtype(iter.dtype(arg));
    operands[arg].stride[rank] = 1;
    const int64_t width = iter.element_size(arg) / 2;
    for (int d = 0; d < rank; ++d) {
      operands[arg].stride[d] = iter.strides(arg)[rank - 1 - d] / width;
    }
  }
  command.program = program.on(iter.device(0).index());
  submit(iter.device(0).index(), command);
}

void PointwiseMeta::refuse_complex(std::initializer_list<const at::Tensor*> tensors) {
  for (const at::Tensor* tensor : tensors) {
    if (tensor->is_complex()) {
      throw Unsupported("complex");
    }
  }
}

void PointwiseMeta::complex_to_real(const at::Tensor& self) {
  const at::Tensor& out = maybe_get_output(0);
  const c10::ScalarType real = c10::toRealValueType(self.scalar_type());
  if (out.defined() && (out.is_complex() || !c10::canCast(real, out.scalar_type()))) {
    throw Unsupported("complex");
  }
  build(at::TensorIteratorConfig()
            .check_all_same_dtype(false)
            .declare_static_dtype(out.defined() ? out.scalar_type() : real)
            .add_borrowed_output(out)
            .add_borrowed_const_input(self));
}

void PointwiseMeta::unary_bool(const at::Tensor& self) {
  if (!maybe_get_output(0).defined()) {
    return build_borrowing_unary_force_boolean_op(maybe_get_output(0), self);
  }
  // A given result keeps its type, whatever it is.
  build(at::TensorIteratorConfig()
            .check_all_same_dtype(false)
            .add_borrowed_output(maybe_get_output(0))
            .add_borrowed_const_input(self));
}

}  // namespace torch_npu
