// The parts of pointwise ops that the op table (codegen/pointwise.ops) cannot say.
#include "csrc/aten/dispatch/pointwise.h"

#include "csrc/aten/dispatch/command.h"

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
  Command command(NPU_MAP, label, iter, 2);
  for (int arg = 0; arg < iter.ntensors(); ++arg) {
    command.add(iter, arg, part_dtype(iter.dtype(arg)), 2).stride[iter.ndim()] = 1;
  }
  command.run(program);
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
