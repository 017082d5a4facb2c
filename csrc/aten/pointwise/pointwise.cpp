// What every op of the op table (codegen/pointwise.ops) shares.
#include "csrc/aten/dispatch/pointwise.h"

#include "csrc/aten/dispatch/command.h"

namespace torch_npu {
namespace {

bool same_complex(const at::TensorIteratorBase& iter) {
  for (int arg = 0; arg < iter.ntensors(); ++arg) {
    if (iter.dtype(arg) != iter.common_dtype() || iter.is_cpu_scalar(arg)) {
      return false;
    }
  }
  return iter.ndim() < NPU_MAX_RANK;
}

// A real program for both parts of complex tensors of one type.
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

}  // namespace

PointwiseIterator::PointwiseIterator() = default;
PointwiseIterator::PointwiseIterator(Into into, const at::Tensor& given) : output_(&given), into_(into) {}
PointwiseIterator::~PointwiseIterator() = default;

// Commands take any strides, so an output never needs a proxy with the strides that the op would like.
void PointwiseIterator::set_output_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                                           at::TensorOptions options NPU_NAMES_DECL) {
  set_output_raw_strided(index, sizes, strides, options NPU_NAMES);
}

void PointwiseIterator::set_output_raw_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                                               at::TensorOptions options NPU_NAMES_DECL) {
  if (output_ == &made_) {
    made_ = make_empty(sizes, strides, options);
  } else if (into_ == Into::kSelf) {
    check_inplace(*output_, sizes, options);
  } else {
    resize_out(*output_, sizes, strides, options);
  }
  at::TensorIteratorBase::set_output_raw_strided(index, sizes, strides, options NPU_NAMES);
}

PointwiseCall::PointwiseCall(at::TensorIteratorBase& iter, const char* label, Numbers numbers)
    : iter_(iter), label_(label), numbers_(numbers), compute_(storage_dtype(iter.common_dtype())) {
  if (compute_ != NPU_DTYPE_NONE) {
    compute_ = compute_dtype(compute_);
  } else {
    compute_ = part_dtype(iter.common_dtype());
    complex_ = true;
    if (compute_ == NPU_DTYPE_NONE) refuse();
  }
}

void PointwiseCall::run(TypedProgram& program, std::initializer_list<npu_scalar> params) const {
  if (complex_) refuse();
  if (converts_like_cast(iter_)) [[likely]] {
    launch_map(iter_, program.of(compute_), label_, params, numbers_);
  } else {
    DeviceProgram& rounded = program.rounded(compute_, storage_dtype(iter_.common_dtype()));
    launch_map_as(c10::ScalarType::Undefined, iter_, rounded, label_, params, numbers_);
  }
}

void PointwiseCall::run_only(TypedProgram& program) const {
  if (has(program)) return run(program, {});
  if (has_complex(program)) return run_complex(program, {});
  refuse();
}

void PointwiseCall::run_parts(TypedProgram& program) const {
  launch_parts(iter_, program.of(compute_), label_);
}

void PointwiseCall::run_complex(TypedProgram& program, std::initializer_list<npu_scalar> params) const {
  launch_map_as(iter_.common_dtype(), iter_, program.of_complex(compute_), label_, params, numbers_, program.pairs());
}

bool PointwiseCall::partwise() const {
  return complex_ && same_complex(iter_);
}

void PointwiseCall::refuse() const {
  throw Unsupported(label_);
}

void PointwiseMeta::unary(const at::Tensor& self) {
  build_borrowing_unary_op(maybe_get_output(0), self);
}
void PointwiseMeta::unary_float(const at::Tensor& self) {
  build_borrowing_unary_float_op(maybe_get_output(0), self);
}
void PointwiseMeta::unary_real(const at::Tensor& self) {
  self.is_complex() ? complex_to_real(self) : unary(self);
}
void PointwiseMeta::unary_float_real(const at::Tensor& self) {
  self.is_complex() ? complex_to_real(self) : unary_float(self);
}
void PointwiseMeta::binary(const at::Tensor& a, const at::Tensor& b) {
  build_borrowing_binary_op(maybe_get_output(0), a, b);
}
void PointwiseMeta::binary_float(const at::Tensor& a, const at::Tensor& b) {
  build_borrowing_binary_float_op(maybe_get_output(0), a, b);
}
void PointwiseMeta::compare(const at::Tensor& a, const at::Tensor& b) {
  build_borrowing_comparison_op(maybe_get_output(0), a, b);
}
void PointwiseMeta::ternary(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  build_ternary_op(maybe_get_output(0), a, b, c);
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
