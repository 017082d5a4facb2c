// Fused optimizers: one MAP per parameter that reads and writes everything the step needs once. Steps, learning rates
// and the gradient scaler's numbers may be on the device: they are operands, so nothing waits for them.
#include <ATen/ops/_fused_adagrad_ops.h>
#include <ATen/ops/_fused_adam_ops.h>
#include <ATen/ops/_fused_adamw_ops.h>
#include <ATen/ops/_fused_sgd_ops.h>

#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/reduction.h"

namespace torch_npu::optimizers_cpp {
namespace {

using at::Tensor;
using at::TensorList;
using MaybeTensor = std::optional<Tensor>;

// A number that every element of a step shares: on the device, on the CPU, or none.
struct Shared {
  Tensor tensor;
  double value = 0;
  bool given = true;

  Shared(double value) : value(value) {}  // NOLINT: a number is one
  Shared(const Tensor& source) {          // NOLINT
    if (source.is_privateuseone()) {
      tensor = source;
    } else {
      value = source.item<double>();
    }
  }
  Shared(const MaybeTensor& source) : Shared(source && source->defined() ? Shared(*source) : Shared(0.0)) {  // NOLINT
    given = source && source->defined();
  }
  void add_to(Rows& rows) const { tensor.defined() ? rows.scalar(tensor) : rows.number(value); }
};

// What the steps have in common: the gradient as it is used, and whether anything may be stored.
struct Options {
  const char* label;
  bool decay, maximize;
  Shared scale, found;

  int64_t key() const { return decay + 2 * maximize + 4 * scale.given + 8 * found.given; }
  // The end of a store: nothing changes where a gradient was found infinite.
  std::string kept() const { return found.given ? ", mask %sound\n" : "\n"; }

  // Leaves the gradient in %g. Operands: param, grad, ..., with scale and found among them.
  std::string head() const {
    std::string text = "each:\n";
    if (found.given) text += "  %sound = found != 1\n";
    text += scale.given ? "  %g = grad / scale\n  grad = %g" + kept() : "  %g = grad\n";
    if (maximize) text += "  %g = -%g\n";
    return text;
  }
};

void check_sizes(const Options& options, TensorList params, std::initializer_list<TensorList> others) {
  for (const TensorList& list : others) {
    TORCH_CHECK(list.size() == params.size(), options.label, ": expected lists of ", params.size(), " tensors, got ",
                list.size());
  }
}

// Rates that all elements share are computed in f64; a device without f64 computes them in the type of the parameter.
// `run` gets the type, as program text has it, and what it adds to a program's key.
template <class Run>
void with_rates(Run run) {
  try {
    run("f64", 0);
  } catch (const Unsupported&) {
    run("$t", 256);
  }
}

ProgramFamily adam_family, sgd_family, adagrad_family;

// -- Adam and AdamW --

struct Adam {
  Options options;
  bool decoupled;  // AdamW
  bool amsgrad;
  double beta1, beta2, weight_decay, eps;

  // exp_avg moves towards the gradient as lerp does it: from the nearer end.
  bool near() const { return std::abs(1 - beta1) < 0.5; }

  // 1 - beta^step is -expm1(step log(beta)), which loses nothing in f32 either.
  std::string text(const char* rates) const {
    std::string text =
        "formula adam(param, grad, exp_avg, exp_avg_sq, max_sq, step: $r, lr: $r, scale, found; log_beta1: $r, "
        "log_beta2: $r, beta2, weight_decay: $w, eps, to_grad, of_square)\n" +
        options.head() + R"(
  %size = number(lr / -expm1(step * log_beta1))
  %by_root = number(reciprocal(sqrt(-expm1(step * log_beta2))))
)";
    text += options.decay && decoupled ? "  %p = param * number(1 - lr * weight_decay)\n" : "  %p = param\n";
    if (options.decay && !decoupled) text += "  %g = %g + param * weight_decay\n";
    const std::string end = options.kept();
    text += std::string("  %m = fma(to_grad, %g - exp_avg, ") + (near() ? "exp_avg" : "%g") + ")\n  exp_avg = %m" +
            end + "  %v = exp_avg_sq * beta2 + of_square * %g * %g\n  exp_avg_sq = %v" + end;
    if (amsgrad) text += "  %v = max(max_sq, %v)\n  max_sq = %v" + end;
    text += "  param = %p - %size * %m / (sqrt(%v) * %by_root + eps)" + end;
    return replace_all(replace_all(text, "$w", decoupled ? rates : "$t"), "$r", rates);
  }

  void run(TensorList params, TensorList grads, TensorList averages, TensorList squares, TensorList maxima,
           TensorList steps, const Shared& lr) const {
    check_sizes(options, params, {grads, averages, squares, steps});
    TORCH_CHECK(maxima.size() == (amsgrad ? params.size() : 0), options.label, ": expected ",
                amsgrad ? "one maximum per parameter" : "no maxima without amsgrad", ", got ", maxima.size());
    const int64_t key = options.key() + 16 * decoupled + 32 * amsgrad + 64 * near();
    const double to_grad = 1 - beta1;
    for (size_t i = 0; i < params.size(); ++i) {
      with_rates([&](const char* rates, int64_t more) {
        Rows rows(options.label, params[i].sizes(), {});
        rows.add(params[i]).add(grads[i]).add(averages[i]).add(squares[i]);
        amsgrad ? rows.add(maxima[i]) : rows.number(0);
        Shared(steps[i]).add_to(rows);
        lr.add_to(rows);
        options.scale.add_to(rows);
        options.found.add_to(rows);
        DeviceProgram& program =
            adam_family.get(key + more, compute_type(params[i], options.label), [&] { return text(rates); });
        rows.map(program, {number(std::log(beta1)), number(std::log(beta2)), number(beta2), number(weight_decay),
                           number(eps), number(near() ? to_grad : to_grad - 1), number(1 - beta2)});
      });
    }
  }
};

template <bool decoupled, class Rate>
void adam(TensorList params, TensorList grads, TensorList averages, TensorList squares, TensorList maxima,
          TensorList steps, const Rate& lr, double beta1, double beta2, double weight_decay, double eps, bool amsgrad,
          bool maximize, const MaybeTensor& grad_scale, const MaybeTensor& found_inf) {
  const Options options{decoupled ? "aten::_fused_adamw_" : "aten::_fused_adam_", weight_decay != 0, maximize,
                        grad_scale, found_inf};
  Adam{options, decoupled, amsgrad, beta1, beta2, weight_decay, eps}.run(params, grads, averages, squares, maxima,
                                                                         steps, Shared(lr));
}

// -- SGD --

template <class Rate>
void sgd(TensorList params, TensorList grads, TensorList buffers, double weight_decay, double momentum, const Rate& lr,
         double dampening, bool nesterov, bool maximize, bool first, const MaybeTensor& grad_scale,
         const MaybeTensor& found_inf) {
  const Options options{"aten::_fused_sgd_", weight_decay != 0, maximize, grad_scale, found_inf};
  const bool moving = momentum != 0;
  check_sizes(options, params, {grads});
  TORCH_CHECK(buffers.size() == (moving ? params.size() : 0), options.label, ": expected ",
              moving ? "one momentum buffer per parameter" : "no momentum buffers without momentum", ", got ",
              buffers.size());
  const auto text = [&] {
    std::string text = "formula sgd(param, grad, buffer, lr, scale, found; weight_decay, momentum, of_grad)\n";
    text += options.head();
    if (options.decay) text += "  %g = fma(param, weight_decay, %g)\n";
    if (moving) {
      text += first ? "  %b = %g\n" : "  %b = fma(of_grad, %g, buffer * momentum)\n";
      text += "  buffer = %b" + options.kept();
      text += nesterov ? "  %g = fma(%b, momentum, %g)\n" : "  %g = %b\n";
    }
    return text + "  param = param - %g * lr" + options.kept();
  };
  const int64_t key = options.key() + 16 * moving + 32 * first + 64 * nesterov;
  const Shared rate(lr);
  for (size_t i = 0; i < params.size(); ++i) {
    Rows rows(options.label, params[i].sizes(), {});
    rows.add(params[i]).add(grads[i]);
    moving ? rows.add(buffers[i]) : rows.number(0);
    rate.add_to(rows);
    options.scale.add_to(rows);
    options.found.add_to(rows);
    rows.map(sgd_family.get(key, compute_type(params[i], options.label), text),
             {number(weight_decay), number(momentum), number(1 - dampening)});
  }
}

// -- Adagrad --

template <class Rate>
void adagrad(TensorList params, TensorList grads, TensorList sums, TensorList steps, const Rate& lr, double lr_decay,
             double weight_decay, double eps, bool maximize, const MaybeTensor& grad_scale,
             const MaybeTensor& found_inf) {
  const Options options{"aten::_fused_adagrad_", weight_decay != 0, maximize, grad_scale, found_inf};
  check_sizes(options, params, {grads, sums, steps});
  const auto text = [&](const char* rates) {
    std::string text =
        "formula adagrad(param, grad, sum, step: $r, lr: $r, scale, found; lr_decay: $r, weight_decay, eps)\n" +
        options.head() + "  %rate = number(lr / (1 + (step - 1) * lr_decay))\n";
    if (options.decay) text += "  %g = %g + param * weight_decay\n";
    text += "  %s = sum + %g * %g\n  sum = %s" + options.kept() + "  param = param - %rate * %g / (sqrt(%s) + eps)" +
            options.kept();
    return replace_all(text, "$r", rates);
  };
  const Shared rate(lr);
  for (size_t i = 0; i < params.size(); ++i) {
    with_rates([&](const char* rates, int64_t more) {
      Rows rows(options.label, params[i].sizes(), {});
      rows.add(params[i]).add(grads[i]).add(sums[i]);
      Shared(steps[i]).add_to(rows);
      rate.add_to(rows);
      options.scale.add_to(rows);
      options.found.add_to(rows);
      DeviceProgram& program =
          adagrad_family.get(options.key() + more, compute_type(params[i], options.label), [&] { return text(rates); });
      rows.map(program, {number(lr_decay), number(weight_decay), number(eps)});
    });
  }
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_native<ops::_fused_adam_, adam<false, double>>(m);
  register_native<ops::_fused_adam__tensor_lr, adam<false, Tensor>>(m);
  register_native<ops::_fused_adamw_, adam<true, double>>(m);
  register_native<ops::_fused_adamw__tensor_lr, adam<true, Tensor>>(m);
  register_native<ops::_fused_sgd_, sgd<double>>(m);
  register_native<ops::_fused_sgd__tensor_lr, sgd<Tensor>>(m);
  register_native<ops::_fused_adagrad_, adagrad<double>>(m);
  register_native<ops::_fused_adagrad__tensor_lr, adagrad<Tensor>>(m);
}

}  // namespace
}  // namespace torch_npu::optimizers_cpp
