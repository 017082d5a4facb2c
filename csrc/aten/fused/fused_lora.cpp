// npu_lora_linear: a linear layer with a low-rank adapter, x W^T + bias + scaling (x A^T) B^T, in three MATMULs. The
// last one adds to the result of the first in its epilogue, so nothing is scaled, added or cast by a command of its
// own.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>

#include "csrc/aten/dispatch/custom_op.h"
#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/optional.h"
#include "csrc/aten/dispatch/types.h"

namespace torch_npu::fused_lora_cpp {
namespace {

using at::Tensor;
using Pair = std::tuple<Tensor, Tensor>;

// Arguments of the op.
enum : int { kInput, kWeight, kBias, kA, kB, kScaling, kAdapted };

TypedProgram k_times(R"(
formula lora_times(a, b, out; scaling)
each:
  out = acc * scaling
)");

TypedProgram k_plus_row(R"(
formula lora_bias(a, b, out, bias)
each:
  out = acc + bias
)");

TypedProgram k_add_to(R"(
formula lora_add(a, b, out; scaling)
each:
  out = out + acc * scaling
)");

// `adapted` is what the adapter sees of x: x behind a dropout, or x itself where it is left out.
void check(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& a, const Tensor& b,
           const Tensor& adapted) {
  constexpr const char* op = "npu_lora_linear";
  check_floating(op, "input", x);
  check_same_type(op, "weight", weight, "input", x);
  check_floating(op, "a", a);
  check_same_type(op, "b", b, "a", a);
  if (bias.defined()) check_floating(op, "bias", bias);
  if (adapted.defined()) check_floating(op, "adapted", adapted);
  check_same_device(op, {&x, &weight, &bias, &a, &b, &adapted});
  const bool fits = x.dim() > 0 && weight.dim() == 2 && a.dim() == 2 && b.dim() == 2 &&
                    x.sym_size(-1) == weight.sym_size(1) && a.sym_size(1) == weight.sym_size(1) &&
                    b.sym_size(0) == weight.sym_size(0) && b.sym_size(1) == a.sym_size(0);
  TORCH_CHECK(fits, op, ": expected input [..., k], weight [n, k], a [r, k] and b [n, r], got ", x.sym_sizes(), ", ",
              weight.sym_sizes(), ", ", a.sym_sizes(), " and ", b.sym_sizes());
  TORCH_CHECK(!bias.defined() || (bias.dim() == 1 && bias.sym_size(0) == weight.sym_size(0)), op, ": expected bias of ",
              weight.sym_size(0), " elements, got ", bias.defined() ? bias.sym_sizes() : c10::SymIntArrayRef());
  TORCH_CHECK(!adapted.defined() || adapted.sym_sizes() == x.sym_sizes(), op, ": expected adapted of input's shape ",
              x.sym_sizes(), ", got ", adapted.defined() ? adapted.sym_sizes() : c10::SymIntArrayRef());
}

Tensor rows_of(const Tensor& like, const c10::SymInt& last, at::ScalarType type) {
  c10::SymDimVector sizes(like.sym_sizes());
  sizes.back() = last;
  return at::empty_symint(sizes, like.options().dtype(type));
}

Pair meta(const Tensor& x, const Tensor& weight, const OptTensor& bias, const Tensor& a, const Tensor& b, double,
          const OptTensor& adapted) {
  check(x, weight, given(bias), a, b, given(adapted));
  return {rows_of(x, weight.sym_size(0), x.scalar_type()), rows_of(x, a.sym_size(0), a.scalar_type())};
}

Pair composition(const Tensor& x, const Tensor& weight, const OptTensor& bias, const Tensor& a, const Tensor& b,
                 double scaling, const OptTensor& adapted) {
  check(x, weight, given(bias), a, b, given(adapted));
  const Tensor down = at::linear((adapted && adapted->defined() ? *adapted : x).to(a.scalar_type()), a);
  const Tensor out = at::linear(x, weight, bias) + at::linear(down, b) * scaling;
  return {out.to(x.scalar_type()), down};
}

// Two dimensions of a tensor, or of all rows of a larger one.
struct Matrix {
  const Tensor& tensor;
  int64_t rows, cols, row, col;

  explicit Matrix(const Tensor& t) : Matrix(t, t.size(0), t.size(1), t.stride(0), t.stride(1)) {}
  Matrix(const Tensor& t, int64_t rows, int64_t cols, int64_t row, int64_t col)
      : tensor(t), rows(rows), cols(cols), row(row), col(col) {}
  static Matrix of_rows(const Tensor& dense) {
    const int64_t cols = dense.size(-1);
    return {dense, dense.numel() / std::max<int64_t>(1, cols), cols, cols, 1};
  }
  Matrix t() const { return {tensor, cols, rows, col, row}; }
};

npu_dtype accumulator(const Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? NPU_F64 : NPU_F32;
}

enum class Then { kStore, kScale, kAdd };

// out = a b (times the factor), or added to it.
void multiply(const char* label, const Matrix& out, const Matrix& a, const Matrix& b, Then then = Then::kStore,
              double factor = 1) {
  Nest nest(NPU_MATMUL, label, {out.rows, out.cols});
  const npu_dtype acc = accumulator(a.tensor);
  nest.contract(a.cols, acc).with(a.tensor, {a.row, a.col}).with(b.tensor, {b.row, b.col});
  nest.with(out.tensor, {out.row, out.col});
  if (then == Then::kStore) return nest.run();
  nest.number(factor).run((then == Then::kAdd ? k_add_to : k_times).of(acc));
}

Tensor dense(const Tensor& tensor) {
  return tensor.resolve_neg().contiguous();
}

Pair native(const Tensor& x_in, const Tensor& weight, const OptTensor& bias_opt, const Tensor& a, const Tensor& b,
            double scaling, const OptTensor& adapted) {
  constexpr const char* label = "npu::npu_lora_linear";
  const Tensor bias = given(bias_opt);
  check(x_in, weight, bias, a, b, given(adapted));
  auto [out, down] = meta(x_in, weight, bias_opt, a, b, scaling, adapted);
  const Tensor x = dense(x_in), seen = adapted && adapted->defined() ? dense(*adapted) : x;
  const Matrix result = Matrix::of_rows(out), low = Matrix::of_rows(down), rows = Matrix::of_rows(x);
  multiply(label, low, Matrix::of_rows(seen), Matrix(a).t());
  if (bias.defined()) {
    Nest(NPU_MATMUL, label, {result.rows, result.cols})
        .contract(rows.cols, accumulator(x))
        .with(x, {rows.row, 1})
        .with(weight, {weight.stride(1), weight.stride(0)})
        .with(out, {result.row, 1})
        .with(bias, {0, bias.stride(0)})
        .run(k_plus_row.of(accumulator(x)));
  } else {
    multiply(label, result, rows, Matrix(weight).t());
  }
  multiply(label, result, low, Matrix(b).t(), Then::kAdd, scaling);
  return {out, down};
}

// Gradients of x and adapted (if `of_input`), a and b. Where the adapter sees x itself the second is empty.
using Grads = std::tuple<Tensor, Tensor, Tensor, Tensor>;

Grads backward_meta(const Tensor&, const Tensor& x, const Tensor&, const Tensor& a, const Tensor& b, const Tensor&,
                    double, const OptTensor& adapted, bool of_input) {
  const auto like = [](const Tensor& t) { return at::empty_symint(t.sym_sizes(), t.options()); };
  const bool apart = adapted && adapted->defined();
  const auto none = [&] { return at::empty({0}, x.options()); };
  return {of_input ? like(x) : none(), apart && of_input ? like(*adapted) : none(), like(a), like(b)};
}

Grads backward_composition(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& a, const Tensor& b,
                           const Tensor& down, double scaling, const OptTensor& adapted, bool of_input) {
  const auto type = a.scalar_type();
  const auto flat = [](const Tensor& t) { return t.reshape({-1, t.size(-1)}); };
  const bool apart = adapted && adapted->defined();
  const Tensor g = grad.to(type) * scaling, up = at::matmul(g, b), seen = (apart ? *adapted : x).to(type);
  Tensor grad_x = at::empty({0}, x.options()), grad_seen = at::empty({0}, x.options());
  if (of_input) {
    const Tensor through = at::matmul(up, a), base = at::matmul(grad, weight);
    grad_x = (apart ? base : base + through).to(x.scalar_type()).contiguous();
    if (apart) grad_seen = through.to(adapted->scalar_type()).contiguous();
  }
  return {grad_x, grad_seen, at::matmul(flat(up).t(), flat(seen)).contiguous(),
          at::matmul(flat(g).t(), flat(down)).contiguous()};
}

Grads backward_native(const Tensor& grad, const Tensor& x_in, const Tensor& weight, const Tensor& a, const Tensor& b,
                      const Tensor& down, double scaling, const OptTensor& adapted, bool of_input) {
  constexpr const char* label = "npu::npu_lora_linear_backward";
  auto [grad_x, grad_seen, grad_a, grad_b] = backward_meta(grad, x_in, weight, a, b, down, scaling, adapted, of_input);
  const bool apart = adapted && adapted->defined();
  const Tensor g_dense = dense(grad), seen = dense(apart ? *adapted : x_in), low = dense(down);
  const Tensor up = rows_of(grad, a.size(0), a.scalar_type());
  const Matrix g = Matrix::of_rows(g_dense), u = Matrix::of_rows(up);
  multiply(label, u, g, Matrix(b), Then::kScale, scaling);
  if (of_input) {
    const Matrix gx = Matrix::of_rows(grad_x);
    multiply(label, gx, g, Matrix(weight));
    if (apart) {
      multiply(label, Matrix::of_rows(grad_seen), u, Matrix(a));
    } else {
      multiply(label, gx, u, Matrix(a), Then::kAdd, 1);
    }
  }
  multiply(label, Matrix(grad_a), u.t(), Matrix::of_rows(seen));
  multiply(label, Matrix(grad_b), g.t(), Matrix::of_rows(low), Then::kScale, scaling);
  return {grad_x, grad_seen, grad_a, grad_b};
}

void gradient(BackwardCall& call) {
  using Signature = Grads(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                          double, const OptTensor&, bool);
  static const auto op = npu_op<Signature>("npu::npu_lora_linear_backward");
  const Tensor &grad = call.grad(0), &x = call.argument(kInput), &a = call.argument(kA),
               &adapted = call.argument(kAdapted);
  const Tensor& seen = adapted.defined() ? adapted : x;
  // Differentiated again, it must know where x A^T comes from.
  const Tensor down = c10::GradMode::is_enabled() ? at::linear(seen.to(a.scalar_type()), a) : call.result(1);
  const bool of_input = call.wants(kInput) || call.wants(kAdapted);
  auto [of_x, of_seen, of_a, of_b] = op.call(grad, x, call.argument(kWeight), a, call.argument(kB), down,
                                             call.value<double>(kScaling), adapted, of_input);
  const auto flat = [](const Tensor& t) { return t.reshape({-1, t.size(-1)}); };
  if (call.wants(kInput)) call.give(kInput, of_x);
  if (call.wants(kWeight)) call.give(kWeight, at::matmul(flat(grad).t(), flat(x)));
  if (call.wants(kBias)) call.give(kBias, flat(grad).sum(0));
  call.give(kA, of_a);
  call.give(kB, of_b);
  if (call.wants(kAdapted)) call.give(kAdapted, of_seen);
}

TORCH_LIBRARY_FRAGMENT(npu, m) {
  const Places all = places(kInput, kWeight, kA, kB, kAdapted), down = places(1);
  std::vector<GradientOf> of;
  for (const int argument : {kInput, kWeight, kBias, kA, kB, kAdapted}) of.push_back({argument, all, down});
  define<native, composition>(
      m,
      "npu_lora_linear(Tensor input, Tensor weight, Tensor? bias, Tensor a, Tensor b, float scaling, "
      "Tensor? adapted=None) -> (Tensor, Tensor)",
      meta, {{gradient, of}, /*lower_precision=*/all | places(kBias)});
  define<backward_native, backward_composition>(
      m,
      "npu_lora_linear_backward(Tensor grad, Tensor input, Tensor weight, Tensor a, Tensor b, Tensor down, "
      "float scaling, Tensor? adapted=None, bool of_input=True) -> (Tensor, Tensor, Tensor, Tensor)",
      backward_meta);
}

}  // namespace
}  // namespace torch_npu::fused_lora_cpp
