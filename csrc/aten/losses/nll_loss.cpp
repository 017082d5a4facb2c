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

// %use, whether the target counts, its class %c and the weight %w.
std::string target_lines(bool weighted) {
  return std::string("each:\n  %use = target != ignore\n  %c = check_index(target, classes, check, mask %use)\n") +
         (weighted ? "  %w = load_at(w, %c * w_stride, mask %use)\n" : "  %w = number(%use)\n");
}

std::string value_text(bool weighted, bool folded) {
  return std::string("formula nll_loss(out") + (folded ? ", total" : "") +
         ", x, target: i64, w; classes: i64, x_stride: i64, w_stride: i64, ignore: i64, mean: bool)\n" +
         target_lines(weighted) + "  %l = -(load_at(x, %c * x_stride, mask %use) * %w)\n" +
         (folded ? R"(
  %s = fold(sum, %l)
  %n = fold(sum, %w)
row:
  total = %n
  out = %s / where(mean, %n, 1)
)"
                 : "  out = %l\n");
}

// Into a gradient of zeros: one element per target.
std::string backward_text(bool weighted) {
  return std::string("formula nll_loss_backward(out, grad, target: i64, total") + (weighted ? ", w" : "") +
         "; classes: i64, out_stride: i64, ignore: i64, mean: bool, w_stride: i64)\n" + target_lines(weighted) +
         "  %g = " + (weighted ? "grad * %w" : "grad") +
         "\n  store_at(out, -(%g / where(mean, total, 1)), %c * out_stride, mask %use)\n";
}

TypedProgram k_each(value_text(false, false)), k_each_weight(value_text(true, false));
TypedProgram k_fold(value_text(false, true)), k_fold_weight(value_text(true, true));
TypedProgram k_backward(backward_text(false)), k_backward_weight(backward_text(true));

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
