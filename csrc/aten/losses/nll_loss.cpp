// Negative log likelihood, 1-d and 2-d alike: one REDUCE (or MAP) forward that loads by class, a fill and one SCATTER
// backward that stores by class.
#include <ATen/core/Reduction.h>
#include <ATen/ops/nll_loss2d_backward_ops.h>
#include <ATen/ops/nll_loss2d_forward_ops.h>
#include <ATen/ops/nll_loss_backward_meta.h>
#include <ATen/ops/nll_loss_backward_ops.h>
#include <ATen/ops/nll_loss_forward_meta.h>
#include <ATen/ops/nll_loss_forward_ops.h>

#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/optional.h"
#include "csrc/aten/dispatch/reduction.h"
#include "csrc/aten/dispatch/structured_pair.h"

namespace torch_npu::nll_loss_cpp {
namespace {

using at::Tensor;

#define NPU_NLL(name, outputs, weight)                                                                \
  "program " name "(" outputs                                                                         \
  ", x, target, w; classes, x_stride, w_stride, ignore, mean)\neach:\n"                               \
  "  %t = load target : i64\n  %ignore = param ignore : i64\n  %use = ne %t, %ignore\n"               \
  "  %classes = param classes : i64\n  %c = check_index %t, %classes, check, mask %use\n"             \
  "  %xs = param x_stride : i64\n  %xa = mul %c, %xs\n  %x = load_at x, %xa, mask %use : $t\n" weight \
  "  %p = mul %x, %w\n  %l = neg %p\n"
#define NPU_NLL_WEIGHT "  %ws = param w_stride : i64\n  %wa = mul %c, %ws\n  %w = load_at w, %wa, mask %use : $t\n"
#define NPU_NLL_NO_WEIGHT "  %w = cast %use : $t\n"
#define NPU_NLL_FOLD                                                                               \
  "  %s = fold sum %l\n  %n = fold sum %w\nrow:\n  store total, %n\n  %mean = param mean : bool\n" \
  "  %one = const 1 : $t\n  %by = where %mean, %n, %one\n  %r = div %s, %by\n  store out, %r\n"

TypedProgram k_each(NPU_NLL("nll_loss", "out", NPU_NLL_NO_WEIGHT) "  store out, %l\n");
TypedProgram k_each_weight(NPU_NLL("nll_loss_weight", "out", NPU_NLL_WEIGHT) "  store out, %l\n");
TypedProgram k_fold(NPU_NLL("nll_loss_sum", "out, total", NPU_NLL_NO_WEIGHT) NPU_NLL_FOLD);
TypedProgram k_fold_weight(NPU_NLL("nll_loss_weight_sum", "out, total", NPU_NLL_WEIGHT) NPU_NLL_FOLD);

// Into a gradient of zeros: one element per target.
#define NPU_NLL_BACKWARD(name, operands, weight)                                                 \
  "program " name "(out, grad, target, total" operands                                           \
  "; classes, out_stride, ignore, mean, w_stride)\neach:\n"                                      \
  "  %t = load target : i64\n  %ignore = param ignore : i64\n  %use = ne %t, %ignore\n"          \
  "  %classes = param classes : i64\n  %c = check_index %t, %classes, check, mask %use\n" weight \
  "  %total = load total : $t\n  %mean = param mean : bool\n  %one = const 1 : $t\n"             \
  "  %by = where %mean, %total, %one\n  %q = div %gw, %by\n  %n = neg %q\n"                      \
  "  %os = param out_stride : i64\n  %at = mul %c, %os\n  store_at out, %n, %at, mask %use\n"

TypedProgram k_backward(NPU_NLL_BACKWARD("nll_loss_backward", "", "  %gw = load grad : $t\n"));
TypedProgram k_backward_weight(NPU_NLL_BACKWARD("nll_loss_weight_backward", ", w",
                                                NPU_NLL_WEIGHT "  %g = load grad : $t\n  %gw = mul %g, %w\n"));

int64_t class_dim(const Tensor& self) {
  return self.dim() == 1 ? 0 : 1;
}

void forward(const Tensor& out, const Tensor& total, const Tensor& self, const Tensor& target, const Tensor& weight,
             int64_t reduction, int64_t ignore, const char* label) {
  const int64_t dim = class_dim(self);
  const npu_dtype compute = compute_type(self, label);
  at::DimVector x_strides, zeros;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d != dim) {
      x_strides.push_back(self.stride(d));
      zeros.push_back(0);
    }
  }
  // A 1-d input may come with a target of one element.
  const at::IntArrayRef space = self.dim() == 1 ? at::IntArrayRef() : target.sizes();
  const bool each = reduction == at::Reduction::None;
  const bool weighted = weight.defined();
  Rows rows(label, space, each ? DimMask() : DimMask().flip());
  if (each) {
    rows.strided(out, self.dim() == 1 ? at::IntArrayRef() : out.strides());
  } else {
    rows.scalar(out).scalar(total);
  }
  rows.strided(self, x_strides);
  rows.strided(target, self.dim() == 1 ? at::IntArrayRef() : target.strides());
  if (weighted) {
    rows.strided(weight, zeros);
  } else {
    rows.number(0);
  }
  const Params params = {integer(self.size(dim)), integer(self.stride(dim)), integer(weighted ? weight.stride(0) : 0),
                         integer(ignore), integer(reduction == at::Reduction::Mean)};
  if (each) {
    rows.map((weighted ? k_each_weight : k_each).of(compute), params);
    total.zero_();
  } else {
    rows.reduce((weighted ? k_fold_weight : k_fold).of(compute), params);
  }
}

void backward(const Tensor& grad_input, const Tensor& grad, const Tensor& self, const Tensor& target,
              const Tensor& weight, int64_t reduction, int64_t ignore, const Tensor& total, const char* label) {
  const int64_t dim = class_dim(self);
  const bool one = self.dim() == 1;  // its target may have one element
  at::DimVector space, out_strides, zeros;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d != dim) {
      space.push_back(self.size(d));
      out_strides.push_back(grad_input.stride(d));
      zeros.push_back(0);
    }
  }
  grad_input.zero_();
  Nest nest(NPU_SCATTER, label, space);
  nest.with(grad_input, out_strides)
      .with(grad, reduction == at::Reduction::None && !one ? grad.strides() : at::IntArrayRef(zeros))
      .with(target, one ? at::IntArrayRef() : target.strides())
      .with(total, zeros);
  if (weight.defined()) {
    nest.with(weight, zeros);
  }
  nest.integers({self.size(dim), grad_input.stride(dim), ignore, reduction == at::Reduction::Mean,
                 weight.defined() ? weight.stride(0) : 0})
      .run((weight.defined() ? k_backward_weight : k_backward).of(compute_type(self, label)));
}

at::OptionalTensorRef optional_ref(const OptTensor& tensor) {
  return tensor && tensor->defined() ? at::OptionalTensorRef(*tensor) : at::OptionalTensorRef();
}

std::tuple<Tensor, Tensor> nll_forward(const Tensor& self, const Tensor& target, const OptTensor& weight,
                                       int64_t reduction, int64_t ignore) {
  const Tensor w = given(weight);
  check_same_device("nll_loss_forward", {&self, &target, &w});
  Pair<at::meta::structured_nll_loss_forward> op;
  op.meta(self, target, optional_ref(weight), reduction, ignore);
  forward(op.outputs[0], op.outputs[1], self, target, w, reduction, ignore, "aten::nll_loss_forward");
  return {op.outputs[0], op.outputs[1]};
}

Tensor nll_backward(const Tensor& grad, const Tensor& self, const Tensor& target, const OptTensor& weight,
                    int64_t reduction, int64_t ignore, const Tensor& total) {
  Functional<at::meta::structured_nll_loss_backward> op;
  op.meta(grad, self, target, optional_ref(weight), reduction, ignore, total);
  backward(op.output, grad, self, target, given(weight), reduction, ignore, total, "aten::nll_loss_backward");
  return op.output;
}

// Shapes that do not fit get PyTorch's sentence from its own kernel.
void check_2d(const Tensor& self, const Tensor& target, const Tensor& weight, const char* label) {
  const bool fits = self.dim() == 4 && target.dim() == 3 && self.size(0) == target.size(0) &&
                    self.size(2) == target.size(1) && self.size(3) == target.size(2) &&
                    (!weight.defined() || weight.numel() == self.size(1));
  if (!fits) {
    throw Unsupported(label);
  }
}

std::tuple<Tensor, Tensor> nll2d_forward(const Tensor& self, const Tensor& target, const OptTensor& weight,
                                         int64_t reduction, int64_t ignore) {
  const char* label = "aten::nll_loss2d_forward";
  const Tensor w = given(weight);
  check_same_device(label, {&self, &target, &w});
  check_2d(self, target, w, label);
  const bool each = reduction == at::Reduction::None;
  const Tensor out = make_empty(each ? target.sizes() : at::IntArrayRef(), {}, self.options());
  const Tensor total = make_empty({}, {}, self.options());
  forward(out, total, self, target, w, reduction, ignore, label);
  return {out, total};
}

Tensor nll2d_backward(const Tensor& grad, const Tensor& self, const Tensor& target, const OptTensor& weight,
                      int64_t reduction, int64_t ignore, const Tensor& total) {
  const char* label = "aten::nll_loss2d_backward";
  check_2d(self, target, given(weight), label);
  const Tensor grad_input = make_empty(self.sizes(), {}, self.options());
  backward(grad_input, grad, self, target, given(weight), reduction, ignore, total, label);
  return grad_input;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_native<ops::nll_loss_forward, nll_forward>(m);
  register_native<ops::nll_loss_backward, nll_backward>(m);
  register_native<ops::nll_loss2d_forward, nll2d_forward>(m);
  register_native<ops::nll_loss2d_backward, nll2d_backward>(m);
}

}  // namespace
}  // namespace torch_npu::nll_loss_cpp
