// The parts of pointwise ops that the op table (codegen/pointwise.ops) cannot say.
#include "csrc/aten/pointwise.h"

namespace torch_npu {

void PointwiseMeta::refuse_complex(std::initializer_list<const at::Tensor*> tensors) {
  for (const at::Tensor* tensor : tensors) {
    if (tensor->is_complex()) {
      throw Unsupported("complex");
    }
  }
}

void PointwiseMeta::unary_bool(const at::Tensor& self) {
  refuse_complex({&self});
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
