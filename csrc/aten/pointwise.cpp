// Pointwise ops, one MAP each. PyTorch's structured classes decide shapes and types; the text is the arithmetic.
#include <ATen/ops/add_meta.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/div_meta.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/eq_meta.h>
#include <ATen/ops/eq_ops.h>
#include <ATen/ops/ge_meta.h>
#include <ATen/ops/ge_ops.h>
#include <ATen/ops/gt_meta.h>
#include <ATen/ops/gt_ops.h>
#include <ATen/ops/le_meta.h>
#include <ATen/ops/le_ops.h>
#include <ATen/ops/lt_meta.h>
#include <ATen/ops/lt_ops.h>
#include <ATen/ops/mul_meta.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/ne_meta.h>
#include <ATen/ops/ne_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/sub_meta.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/threshold_backward_meta.h>
#include <ATen/ops/threshold_backward_ops.h>

#include "csrc/aten/map.h"
#include "csrc/aten/structured.h"

namespace torch_npu {
namespace {

// out = x <op> y
#define NPU_BINARY_TEXT(name, op) \
  "program " name                 \
  "(out, x, y)\n"                 \
  "each:\n"                       \
  "  %x = load x : $t\n"          \
  "  %y = load y : $t\n"          \
  "  %r = " op                    \
  " %x, %y\n"                     \
  "  store out, %r\n"

TypedKernel k_add(NPU_BINARY_TEXT("add", "add"));
TypedKernel k_sub(NPU_BINARY_TEXT("sub", "sub"));
TypedKernel k_mul(NPU_BINARY_TEXT("mul", "mul"));
TypedKernel k_div(NPU_BINARY_TEXT("div", "div"));
TypedKernel k_or(NPU_BINARY_TEXT("or", "or"));
TypedKernel k_and(NPU_BINARY_TEXT("and", "and"));
TypedKernel k_eq(NPU_BINARY_TEXT("eq", "eq"));
TypedKernel k_ne(NPU_BINARY_TEXT("ne", "ne"));
TypedKernel k_lt(NPU_BINARY_TEXT("lt", "lt"));
TypedKernel k_le(NPU_BINARY_TEXT("le", "le"));
TypedKernel k_gt(NPU_BINARY_TEXT("gt", "gt"));
TypedKernel k_ge(NPU_BINARY_TEXT("ge", "ge"));

// One rounding for floats, as PyTorch's vector code does.
TypedKernel k_add_scaled(R"(
program add_scaled(out, x, y; alpha)
each:
  %x = load x : $t
  %y = load y : $t
  %a = param alpha : $t
  %r = fma %y, %a, %x
  store out, %r
)");

TypedKernel k_add_scaled_int(R"(
program add_scaled_int(out, x, y; alpha)
each:
  %x = load x : $t
  %y = load y : $t
  %a = param alpha : $t
  %p = mul %y, %a
  %r = add %x, %p
  store out, %r
)");

TypedKernel k_relu(R"(
program relu(out, x)
each:
  %x = load x : $t
  %z = const 0 : $t
  %r = max %x, %z
  store out, %r
)");

TypedKernel k_threshold_backward(R"(
program threshold_backward(out, x, grad; threshold)
each:
  %x = load x : $t
  %t = param threshold : $t
  %m = le %x, %t
  %g = load grad : $t
  %z = const 0 : $t
  %r = where %m, %z, %g
  store out, %r
)");

void add_scaled(at::TensorIteratorBase& iter, const at::Scalar& alpha, const char* label) {
  const npu_dtype compute = iterator_compute_dtype(iter);
  if (compute == NPU_BOOL) {  // torch: the logical or
    if (!alpha.toBool()) {
      throw Unsupported(label);
    }
    return launch_map(iter, k_or.of(compute), label);
  }
  const bool one = alpha.isFloatingPoint() ? alpha.toDouble() == 1 : alpha.equal(1);
  if (one) {
    return launch_map(iter, k_add.of(compute), label);
  }
  auto& kernel = is_float(compute) ? k_add_scaled : k_add_scaled_int;
  launch_map(iter, kernel.of(compute), label, {scalar_param(alpha, compute)});
}

void launch_add(at::TensorIteratorBase& iter, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                const at::Scalar& alpha) {
  add_scaled(iter, alpha, "aten::add");
}

void launch_sub(at::TensorIteratorBase& iter, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                const at::Scalar& alpha) {
  if (alpha.equal(1)) {
    return launch_map(iter, k_sub.of(iterator_compute_dtype(iter)), "aten::sub");
  }
  add_scaled(iter, -alpha, "aten::sub");
}

void launch_mul(at::TensorIteratorBase& iter, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  const npu_dtype compute = iterator_compute_dtype(iter);
  launch_map(iter, (compute == NPU_BOOL ? k_and : k_mul).of(compute), "aten::mul");
}

void launch_div(at::TensorIteratorBase& iter, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  launch_map(iter, k_div.of(iterator_compute_dtype(iter)), "aten::div");
}

template <TypedKernel& kernel, class Name>
struct Compare {
  template <class Other>
  static void launch(at::TensorIteratorBase& iter, const at::Tensor&, const at::Tensor&, const Other&) {
    const npu_dtype compute = iterator_compute_dtype(iter);
    launch_map(iter, kernel.of(compute == NPU_BOOL ? NPU_I32 : compute), Name::label, {}, Numbers::kRounded);
  }
};

struct UnaryMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& self) { build_borrowing_unary_op(maybe_get_output(0), self); }
};

void launch_relu(at::TensorIteratorBase& iter, const at::Tensor&, const at::Tensor& self) {
  TORCH_CHECK(self.scalar_type() != at::kBool, "Boolean inputs not supported for relu");
  launch_map(iter, k_relu.of(iterator_compute_dtype(iter)), "aten::relu");
}

void launch_threshold_backward(at::TensorIteratorBase& iter, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                               const at::Scalar& threshold) {
  const npu_dtype compute = iterator_compute_dtype(iter);
  launch_map(iter, k_threshold_backward.of(compute), "aten::threshold_backward", {scalar_param(threshold, compute)});
}

#define NPU_COMPARE(op)                                                                               \
  struct op##_name {                                                                                  \
    static constexpr const char* label = "aten::" #op;                                                \
  };                                                                                                  \
  void register_##op(torch::Library& m) {                                                             \
    structured<at::meta::structured_##op##_Tensor, Compare<k_##op, op##_name>::launch<at::Tensor>>(m) \
        .functional<at::_ops::op##_Tensor>()                                                          \
        .inplace<at::_ops::op##__Tensor>()                                                            \
        .out<at::_ops::op##_Tensor_out>();                                                            \
    structured<at::meta::structured_##op##_Scalar, Compare<k_##op, op##_name>::launch<at::Scalar>>(m) \
        .functional<at::_ops::op##_Scalar>()                                                          \
        .inplace<at::_ops::op##__Scalar>()                                                            \
        .out<at::_ops::op##_Scalar_out>();                                                            \
  }

NPU_COMPARE(eq)
NPU_COMPARE(ne)
NPU_COMPARE(lt)
NPU_COMPARE(le)
NPU_COMPARE(gt)
NPU_COMPARE(ge)

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<at::meta::structured_add_Tensor, launch_add>(m)
      .functional<at::_ops::add_Tensor>()
      .inplace<at::_ops::add__Tensor>()
      .out<at::_ops::add_out>();
  structured<at::meta::structured_sub_Tensor, launch_sub>(m)
      .functional<at::_ops::sub_Tensor>()
      .inplace<at::_ops::sub__Tensor>()
      .out<at::_ops::sub_out>();
  structured<at::meta::structured_mul_Tensor, launch_mul>(m)
      .functional<at::_ops::mul_Tensor>()
      .inplace<at::_ops::mul__Tensor>()
      .out<at::_ops::mul_out>();
  structured<at::meta::structured_div_Tensor, launch_div>(m)
      .functional<at::_ops::div_Tensor>()
      .inplace<at::_ops::div__Tensor>()
      .out<at::_ops::div_out>();
  structured<at::meta::structured_threshold_backward, launch_threshold_backward>(m)
      .functional<at::_ops::threshold_backward>()
      .out<at::_ops::threshold_backward_grad_input>();
  structured<UnaryMeta, launch_relu>(m).functional<at::_ops::relu>().inplace<at::_ops::relu_>();
  register_eq(m);
  register_ne(m);
  register_lt(m);
  register_le(m);
  register_gt(m);
  register_ge(m);
}

}  // namespace
}  // namespace torch_npu
