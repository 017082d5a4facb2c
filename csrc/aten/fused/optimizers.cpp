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

  // Leaves the gradient in %g and the parameter in %p. Operands: param, grad, ..., with scale and found among them.
  std::string head() const {
    std::string text = "each:\n  %p = load param : $t\n";
    if (found.given) text += "  %found = load found : $t\n  %one_ = const 1 : $t\n  %sound = ne %found, %one_\n";
    text += std::string("  ") + (scale.given ? "%raw" : maximize ? "%plain" : "%g") + " = load grad : $t\n";
    if (scale.given) {
      text += std::string("  %scale = load scale : $t\n  ") + (maximize ? "%plain" : "%g") + " = div %raw, %scale\n";
      text += std::string("  store grad, ") + (maximize ? "%plain" : "%g") + kept();
    }
    if (maximize) text += "  %g = neg %plain\n";
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
// `run` gets the type, as program text has it, and what it adds to a kernel's key.
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
        "program adam(param, grad, exp_avg, exp_avg_sq, max_sq, step, lr, scale, found; log_beta1, log_beta2, beta2, "
        "weight_decay, eps, to_grad, of_square)\n" +
        options.head() + R"(
  %step = load step : $r
  %lr = load lr : $r
  %log1 = param log_beta1 : $r
  %n1 = mul %step, %log1
  %e1 = expm1 %n1
  %c1 = neg %e1
  %rate = div %lr, %c1
  %size = cast %rate : $t
  %log2 = param log_beta2 : $r
  %n2 = mul %step, %log2
  %e2 = expm1 %n2
  %c2 = neg %e2
  %c2r = sqrt %c2
  %c2i = reciprocal %c2r
  %by_root = cast %c2i : $t
)";
    if (options.decay && decoupled) {
      text += R"(
  %wd = param weight_decay : $r
  %lw = mul %lr, %wd
  %one = const 1 : $r
  %rest = sub %one, %lw
  %left = cast %rest : $t
  %p1 = mul %p, %left
)";
    } else if (options.decay) {
      text += R"(
  %wd = param weight_decay : $t
  %pw = mul %p, %wd
  %g1 = add %g, %pw
)";
    }
    const std::string p = options.decay && decoupled ? "%p1" : "%p", g = options.decay && !decoupled ? "%g1" : "%g";
    text += replace_all(replace_all(R"(
  %m = load exp_avg : $t
  %d = sub $g, %m
  %w = param to_grad : $t
  %m1 = fma %w, %d, $near
  store exp_avg, %m1$end
  %v = load exp_avg_sq : $t
  %beta = param beta2 : $t
  %v0 = mul %v, %beta
  %w2 = param of_square : $t
  %g2 = mul %w2, $g
  %g3 = mul %g2, $g
  %v1 = add %v0, %g3
  store exp_avg_sq, %v1$end
)",
                                    "$near", near() ? "%m" : "$g"),
                        "$g", g);
    if (amsgrad) text += "  %x = load max_sq : $t\n  %x1 = max %x, %v1\n  store max_sq, %x1$end\n";
    text += std::string("  %r = sqrt ") + (amsgrad ? "%x1" : "%v1") + R"(
  %rc = mul %r, %by_root
  %eps = param eps : $t
  %denominator = add %rc, %eps
  %sm = mul %size, %m1
  %change = div %sm, %denominator
  %new = sub )" +
            p + ", %change\n  store param, %new$end";
    text = replace_all(text, "$end", replace_all(options.kept(), "\n", "")) + "\n";
    return replace_all(text, "$r", rates);
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
    std::string text = "program sgd(param, grad, buffer, lr, scale, found; weight_decay, momentum, of_grad)\n";
    text += options.head() + "  %lr = load lr : $t\n";
    std::string g = "%g";
    if (options.decay) {
      text += "  %wd = param weight_decay : $t\n  %g1 = fma %p, %wd, %g\n";
      g = "%g1";
    }
    if (moving) {
      text += "  %momentum = param momentum : $t\n";
      std::string b = g;
      if (!first) {
        text += "  %b = load buffer : $t\n  %b0 = mul %b, %momentum\n  %w = param of_grad : $t\n  %b1 = fma %w, " + g +
                ", %b0\n";
        b = "%b1";
      }
      text += "  store buffer, " + b + options.kept();
      if (nesterov) text += "  %g2 = fma " + b + ", %momentum, " + g + "\n";
      g = nesterov ? "%g2" : b;
    }
    return text + "  %change = mul " + g + ", %lr\n  %new = sub %p, %change\n  store param, %new" + options.kept();
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
    std::string text = "program adagrad(param, grad, sum, step, lr, scale, found; lr_decay, weight_decay, eps)\n";
    text += options.head() + R"(
  %one = const 1 : $r
  %step = load step : $r
  %before = sub %step, %one
  %decay = param lr_decay : $r
  %slower = mul %before, %decay
  %by = add %one, %slower
  %lr = load lr : $r
  %exact = div %lr, %by
  %rate = cast %exact : $t
)";
    if (options.decay) text += "  %wd = param weight_decay : $t\n  %pw = mul %p, %wd\n  %g1 = add %g, %pw\n";
    text += R"(
  %s = load sum : $t
  %gg = mul $g, $g
  %s1 = add %s, %gg
  store sum, %s1$end
  %r = sqrt %s1
  %eps = param eps : $t
  %denominator = add %r, %eps
  %rg = mul %rate, $g
  %change = div %rg, %denominator
  %new = sub %p, %change
  store param, %new$end
)";
    text = replace_all(text, "$g", options.decay ? "%g1" : "%g");
    return replace_all(replace_all(text, "$end", replace_all(options.kept(), "\n", "")), "$r", rates);
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
