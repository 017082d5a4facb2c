// npu_rotary_mul: rotary position embedding, input * r1 + turned(input) * r2. `half` turns (x, y) of the two halves of
// a row into (-y, x), `interleave` those of neighbours. Forward is one MAP over pairs; so is the gradient of the input.
// The gradients of r1 and r2 are one REDUCE over the dimensions along which they were broadcast.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include "csrc/aten/dispatch/custom_op.h"
#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/reduction.h"
#include "table/kernels.h"

namespace torch_npu::fused_rotary_cpp {
namespace {

using at::Tensor;

// Of r1, values at the first and the second member of a pair, and of r2.
TypedProgram k_rotary_weights(R"(
formula rotary_weight_grad(r1x, r1y, r2x, r2y, gx, gy, x, y)
each:
  %fa = fold(sum, gx * x)
  %fb = fold(sum, gy * y)
  %fc = fold(sum, -(gx * y))
  %fd = fold(sum, gy * x)
row:
  r1x = %fa
  r1y = %fb
  r2x = %fc
  r2y = %fd
)");

// True for interleave.
bool check(const Tensor& x, const Tensor& r1, const Tensor& r2, c10::string_view mode) {
  constexpr const char* op = "npu_rotary_mul";
  check_floating(op, "input", x);
  check_floating(op, "r1", r1);
  check_floating(op, "r2", r2);
  check_same_device(op, {&x, &r1, &r2});
  TORCH_CHECK_VALUE(mode == "half" || mode == "interleave", op, ": expected rotary_mode 'half' or 'interleave', got '",
                    mode, "'");
  TORCH_CHECK(x.dim() > 0 && x.sym_size(-1) % 2 == 0, op, ": expected input with an even last dimension, got ",
              x.sym_sizes());
  const auto shape = r1.sym_sizes();
  bool fits = shape == r2.sym_sizes() && r1.dim() <= x.dim() && r1.dim() > 0 && shape.back() == x.sym_size(-1);
  for (int64_t d = 1; fits && d <= r1.dim(); ++d) {
    fits = shape[r1.dim() - d] == 1 || shape[r1.dim() - d] == x.sym_size(-d);
  }
  TORCH_CHECK(fits, op, ": expected r1 and r2 of one shape that broadcasts to input ", x.sym_sizes(), ", got ", shape,
              " and ", r2.sym_sizes());
  return mode == "interleave";
}

Tensor turned(const Tensor& x, bool interleave) {
  if (interleave) {
    const Tensor pairs = x.unflatten(-1, {-1, 2});
    return at::stack({-pairs.select(-1, 1), pairs.select(-1, 0)}, -1).flatten(-2);
  }
  const auto halves = x.chunk(2, -1);
  return at::cat({-halves[1], halves[0]}, -1);
}

Tensor meta(const Tensor& x, const Tensor& r1, const Tensor& r2, c10::string_view mode) {
  check(x, r1, r2, mode);
  return at::empty_symint(x.sym_sizes(), x.options());
}

Tensor composition(const Tensor& x, const Tensor& r1, const Tensor& r2, c10::string_view mode) {
  const bool interleave = check(x, r1, r2, mode);
  return (x * r1 + turned(x, interleave) * r2).to(x.scalar_type()).contiguous();
}

// The index space of pairs, and the operands of a tensor in it: first members, then second ones.
struct Pairs {
  std::vector<int64_t> whole, sizes;
  bool interleave;

  Pairs(const Tensor& x, bool interleave) : whole(x.sizes().vec()), sizes(whole), interleave(interleave) {
    sizes.back() /= 2;
  }

  struct View {
    at::DimVector strides;
    int64_t second;  // where the second members begin
  };
  View of(const Tensor& tensor) const {
    View view{expanded_strides(tensor, whole), 0};
    view.second = interleave ? view.strides.back() : view.strides.back() * sizes.back();
    if (interleave) view.strides.back() *= 2;
    return view;
  }
  void add(Nest& nest, const Tensor& tensor, bool swapped = false) const {
    const View view = of(tensor);
    nest.with(tensor, view.strides, swapped ? view.second : 0).with(tensor, view.strides, swapped ? 0 : view.second);
  }
};

void run(const char* label, const Tensor& out, const Tensor& x, const Tensor& r1, const Tensor& r2, bool interleave,
         bool back) {
  for (const Tensor* tensor : {&x, &r1, &r2}) {
    if (tensor->is_neg() || tensor->numel() == 0) throw Unsupported(label);
  }
  const Pairs pairs(out, interleave);
  Nest nest(NPU_MAP, label, pairs.sizes);
  // Backwards a pair is turned the other way, and r2 of the other member belongs to it: the program for (y, x).
  pairs.add(nest, out, back);
  pairs.add(nest, x, back);
  pairs.add(nest, r1, back);
  pairs.add(nest, r2);
  nest.run(table::rotate.of(compute_type(x, label)));
}

Tensor native(const Tensor& x, const Tensor& r1, const Tensor& r2, c10::string_view mode) {
  const bool interleave = check(x, r1, r2, mode);
  const Tensor out = at::empty(x.sizes(), x.options());
  run("npu::npu_rotary_mul", out, x, r1, r2, interleave, false);
  return out;
}

using Grads = std::tuple<Tensor, Tensor, Tensor>;

Grads backward_meta(const Tensor&, const Tensor& x, const Tensor& r1, const Tensor& r2, c10::string_view,
                    bool of_weights) {
  const auto like = [](const Tensor& t) { return at::empty_symint(t.sym_sizes(), t.options()); };
  const auto none = [](const Tensor& t) { return at::empty({0}, t.options()); };
  return {like(x), of_weights ? like(r1) : none(r1), of_weights ? like(r2) : none(r2)};
}

Grads backward_composition(const Tensor& grad, const Tensor& x, const Tensor& r1, const Tensor& r2,
                           c10::string_view mode, bool of_weights) {
  const bool interleave = mode == "interleave";
  const Tensor grad_x = (grad * r1 - turned(grad * r2, interleave)).to(x.scalar_type()).contiguous();
  if (!of_weights) return {grad_x, at::empty({0}, r1.options()), at::empty({0}, r2.options())};
  return {grad_x, at::sum_to(grad * x, r1.sizes()).to(r1.scalar_type()).contiguous(),
          at::sum_to(grad * turned(x, interleave), r2.sizes()).to(r2.scalar_type()).contiguous()};
}

Grads backward_native(const Tensor& grad, const Tensor& x, const Tensor& r1, const Tensor& r2, c10::string_view mode,
                      bool of_weights) {
  constexpr const char* label = "npu::npu_rotary_mul_backward";
  const bool interleave = mode == "interleave";
  check_same_device(label, {&grad, &x, &r1, &r2});
  const Tensor grad_x = at::empty(x.sizes(), x.options());
  run(label, grad_x, grad, r1, r2, interleave, true);
  if (!of_weights) return {grad_x, at::empty({0}, r1.options()), at::empty({0}, r2.options())};
  const Tensor grad_r1 = at::empty(r1.sizes(), r1.options()), grad_r2 = at::empty(r2.sizes(), r2.options());
  const Pairs pairs(x, interleave);
  DimMask folded;
  for (int64_t d = 0; d < x.dim(); ++d) {
    folded[d] = d < x.dim() - r1.dim() || r1.size(d - x.dim() + r1.dim()) == 1;
  }
  Rows rows(label, pairs.sizes, folded);
  for (const Tensor* tensor : {&grad_r1, &grad_r2, &grad, &x}) {
    const auto view = pairs.of(*tensor);
    rows.strided(*tensor, view.strides).strided(*tensor, view.strides, 0, view.second);
  }
  rows.reduce(k_rotary_weights.of(compute_type(x, label)));
  return {grad_x, grad_r1, grad_r2};
}

// Without gradients of r1 and r2 the input is needed for nothing but its shape.
void gradient(BackwardCall& call) {
  using Signature = Grads(const Tensor&, const Tensor&, const Tensor&, const Tensor&, c10::string_view, bool);
  static const auto op = npu_op<Signature>("npu::npu_rotary_mul_backward");
  const bool of_weights = call.wants(1) || call.wants(2);
  const Tensor& x = call.argument(0).defined() ? call.argument(0) : call.grad(0);
  auto [gx, g1, g2] =
      op.call(call.grad(0), x, call.argument(1), call.argument(2), call.value<std::string>(3), of_weights);
  call.give(0, gx);
  if (call.wants(1)) call.give(1, g1);
  if (call.wants(2)) call.give(2, g2);
}

TORCH_LIBRARY_FRAGMENT(npu, m) {
  const Places all = places(0, 1, 2);
  define<native, composition>(m, "npu_rotary_mul(Tensor input, Tensor r1, Tensor r2, str rotary_mode='half') -> Tensor",
                              meta, {{gradient, {{0, places(1, 2)}, {1, all}, {2, all}}}});
  define<backward_native, backward_composition>(
      m,
      "npu_rotary_mul_backward(Tensor grad, Tensor input, Tensor r1, Tensor r2, str rotary_mode='half', "
      "bool need_backward=True) -> (Tensor, Tensor, Tensor)",
      backward_meta);
}

}  // namespace
}  // namespace torch_npu::fused_rotary_cpp
