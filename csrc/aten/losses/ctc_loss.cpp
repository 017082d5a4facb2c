// Connectionist temporal classification. The states of a sample are its labels with blanks around them; log
// probabilities of paths run forwards (alpha) and backwards (beta) through time, one MAP per step over all samples and
// states. The gradient is the posterior of the states, added up by label.
#include <ATen/TensorOperators.h>
#include <ATen/TensorUtils.h>
#include <ATen/ops/_ctc_loss_backward_native.h>
#include <ATen/ops/_ctc_loss_backward_ops.h>
#include <ATen/ops/_ctc_loss_native.h>
#include <ATen/ops/_ctc_loss_ops.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/structured.h"

namespace torch_npu::ctc_loss_cpp {
namespace {

using at::IntArrayRef;
using at::Tensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One step: from a state, the one beside it, and the one behind a blank that may be left out. `first` is the step at
// which a sample starts, in the direction of the walk.
TypedProgram k_step(R"(
formula ctc_step(next, previous, emission, one: bool, two: bool, init: bool, first: i64;
   time: i64, direction: i64, off1: i64, off2: i64)
each:
  %age = (time - first) * direction
  %runs = %age > 0
  %m1 = one and %runs
  %m2 = two and %runs
  %a = load(previous, mask %runs)
  %b = where(%m1, load_at(previous, off1, mask %m1), -inf)
  %c = where(%m2, load_at(previous, off2, mask %m2), -inf)
  %abc = max(max(%a, %b), %c)
  %max = where(%abc == -inf, 0, %abc)
  %lm = log(exp(%a - %max) + exp(%b - %max) + exp(%c - %max)) + %max
  %r = where(%age == 0, where(init, emission, -inf), where(%runs, %lm + emission, -inf))
  next = %r
)");

struct States {
  Tensor labels;         // [samples, states], with blanks
  Tensor place;          // the number of each state, [1, states]
  Tensor ends;           // twice the target's length, [samples, 1]
  Tensor input_lengths;  // [samples]
  Tensor emission;       // [time, samples, states]: log probability of each state's label
  int64_t count = 0;
};

Tensor on_device(IntArrayRef values, const Tensor& like) {
  return at::tensor(values, at::kLong).to(like.device());
}

States make_states(const Tensor& log_probs, const Tensor& targets_, IntArrayRef input_lengths,
                   IntArrayRef target_lengths, int64_t blank) {
  const int64_t batch = log_probs.size(1);
  int64_t longest = 0;
  std::vector<int64_t> starts(batch);
  for (int64_t b = 0, at = 0; b < batch; at += target_lengths[b++]) {
    longest = std::max(longest, target_lengths[b]);
    starts[b] = at;
  }
  const Tensor targets = targets_.to(log_probs.device(), at::kLong);
  States s;
  s.count = 2 * longest + 1;
  s.place = at::arange(s.count, targets.options()).unsqueeze(0);
  const Tensor lengths = on_device(target_lengths, log_probs).unsqueeze(1);
  s.ends = lengths * 2;
  s.input_lengths = on_device(input_lengths, log_probs);
  s.labels = at::full({batch, s.count}, blank, targets.options());
  if (longest > 0) {
    const Tensor column = at::arange(longest, targets.options()).unsqueeze(0);
    Tensor padded;
    if (targets.dim() == 1) {
      const Tensor from = on_device(starts, log_probs).unsqueeze(1) + column;
      padded = targets.take(from.clamp_max(targets.numel() - 1));
    } else {
      padded = targets.narrow(1, 0, longest);
    }
    // What is behind a target's end may be anything; the blank is in range.
    s.labels.slice(1, 1, s.count, 2)
        .copy_(at::where(column < lengths, padded, at::scalar_tensor(blank, targets.options())));
  }
  s.emission = log_probs.gather(2, s.labels.unsqueeze(0).expand({log_probs.size(0), batch, s.count}));
  return s;
}

// paths[sample, time, state], forwards or backwards.
Tensor walk(const States& s, bool forwards, const char* label) {
  const int64_t time = s.emission.size(0), batch = s.emission.size(1), states = s.count;
  const Tensor paths = make_empty({batch, time, states}, {}, s.emission.options());
  const Tensor inside = s.place <= s.ends;
  // Two states on, if their labels differ: a blank lies between.
  Tensor jump = at::zeros({batch, states}, s.place.options().dtype(at::kBool));
  if (states > 2) {
    jump.narrow(1, forwards ? 2 : 0, states - 2)
        .copy_(s.labels.narrow(1, 2, states - 2).ne(s.labels.narrow(1, 0, states - 2)));
  }
  Tensor one, two, init, first;
  if (forwards) {
    one = (s.place > 0) & inside;
    two = jump & inside & (s.place > 1);
    init = (s.place <= 1) & inside;
    first = at::zeros({batch}, s.place.options());
  } else {
    one = s.place < s.ends;
    two = jump & (s.place < s.ends - 1);
    init = (s.place == s.ends) | (s.place == s.ends - 1);
    first = s.input_lengths - 1;
  }
  one = one.contiguous();
  two = two.contiguous();
  init = init.contiguous();
  // States behind the end stay impossible: their emission is taken away.
  const Tensor emission =
      at::where(inside.unsqueeze(0), s.emission, at::scalar_tensor(-kInfinity, s.emission.options()));
  DeviceProgram& program = k_step.of(compute_dtype(storage_dtype(paths.scalar_type())));
  for (int64_t step = 0; step < time; ++step) {
    const int64_t t = forwards ? step : time - 1 - step;
    const int64_t before = step == 0 ? t : forwards ? t - 1 : t + 1;
    Nest(NPU_MAP, label, {batch, states})
        .with(paths, {time * states, 1}, t * states)
        .with(paths, {time * states, 1}, before * states)
        .with(emission, {states, 1}, t * batch * states)
        .with(one, {states, 1})
        .with(two, {states, 1})
        .with(init, {states, 1})
        .with(first, {1, 0})
        .integer(t)
        .integer(forwards ? 1 : -1)
        .integer(forwards ? -1 : 1)
        .integer(forwards ? -2 : 2)
        .run(program);
  }
  return paths;
}

void check(const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths, IntArrayRef target_lengths,
           int64_t blank) {
  const char* c = "ctc_loss_allocate_outputs";
  const at::TensorArg targets_arg(targets, "targets", 2);
  at::checkScalarTypes(c, targets_arg, {at::kLong, at::kInt});
  at::checkDim(c, at::TensorArg(log_probs, "log_probs", 1), 3);
  at::checkDimRange(c, targets_arg, 1, 3);
  TORCH_CHECK(log_probs.numel() > 0, "log_probs tensor must not be empty");
  const int64_t time = log_probs.size(0), batch = log_probs.size(1);
  TORCH_CHECK(0 <= blank && blank < log_probs.size(2), "blank must be in label range");
  TORCH_CHECK(static_cast<int64_t>(input_lengths.size()) == batch, "input_lengths must be of size batch_size");
  TORCH_CHECK(static_cast<int64_t>(target_lengths.size()) == batch, "target_lengths must be of size batch_size");
  int64_t total = 0, longest = 0;
  for (int64_t b = 0; b < batch; ++b) {
    TORCH_CHECK(target_lengths[b] >= 0, "Expected target_lengths to have value at least 0, but got value ",
                target_lengths[b], " (while checking arguments for ", c, ")");
    TORCH_CHECK(input_lengths[b] >= 0, "Expected input_lengths to have value at least 0, but got value ",
                input_lengths[b], " (while checking arguments for ", c, ")");
    TORCH_CHECK(input_lengths[b] <= time, "Expected input_lengths to have value at most ", time, ", but got value ",
                input_lengths[b], " (while checking arguments for ", c, ")");
    total += target_lengths[b];
    longest = std::max(longest, target_lengths[b]);
  }
  at::checkSize(c, targets_arg, 0, targets.dim() == 1 ? total : batch);
  TORCH_CHECK(targets.dim() == 1 || targets.size(1) >= longest, "Expected tensor to have size at least ", longest,
              " at dimension 1, but got size ", targets.dim() == 1 ? 0 : targets.size(1), " for ", targets_arg,
              " (while checking arguments for ", c, ")");
}

void refuse_other_types(const Tensor& log_probs, const char* label) {
  if (log_probs.scalar_type() != at::kFloat && log_probs.scalar_type() != at::kDouble) {
    throw Unsupported(label);  // for PyTorch's own sentence
  }
}

std::tuple<Tensor, Tensor> ctc_loss(const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths,
                                    IntArrayRef target_lengths, int64_t blank, bool) {
  constexpr const char* label = "aten::_ctc_loss";
  refuse_other_types(log_probs, label);
  check(log_probs, targets, input_lengths, target_lengths, blank);
  const States s = make_states(log_probs, targets, input_lengths, target_lengths, blank);
  const Tensor alpha = walk(s, /*forwards=*/true, label);
  // The two states in which a path may end.
  const int64_t time = log_probs.size(0), batch = log_probs.size(1);
  const Tensor end = s.ends.squeeze(1), last = (s.input_lengths - 1).clamp_min(0);
  const Tensor at = (at::arange(batch, end.options()) * time + last) * s.count + end;
  const Tensor low = at::scalar_tensor(-kInfinity, alpha.options()), zero = at::scalar_tensor(0, alpha.options());
  const Tensor blank_end = alpha.take(at);
  const Tensor label_end = at::where(end > 0, alpha.take((at - 1).clamp_min(0)), low);
  const Tensor likelihood =
      at::where(s.input_lengths > 0, at::logaddexp(blank_end, label_end), at::where(end > 0, low, zero));
  return {-likelihood, alpha};
}

Tensor ctc_loss_backward(const Tensor& grad, const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths,
                         IntArrayRef target_lengths, const Tensor& loss, const Tensor& alpha, int64_t blank,
                         bool zero_infinity) {
  constexpr const char* label = "aten::_ctc_loss_backward";
  refuse_other_types(log_probs, label);
  const States s = make_states(log_probs, targets, input_lengths, target_lengths, blank);
  const Tensor beta = walk(s, /*forwards=*/false, label);
  const int64_t time = log_probs.size(0);
  const Tensor joint = (alpha + beta).transpose(0, 1) - s.emission + loss.unsqueeze(1);
  const Tensor posterior = at::zeros(log_probs.sizes(), log_probs.options())
                               .scatter_add_(2, s.labels.unsqueeze(0).expand(joint.sizes()), joint.exp());
  const Tensor result = (log_probs.exp() - posterior) * grad.unsqueeze(1);
  Tensor keep = at::arange(time, s.place.options()).unsqueeze(1) < s.input_lengths;
  if (zero_infinity) {
    keep = keep & loss.ne(kInfinity);
  }
  return at::where(keep.unsqueeze(2), result, at::scalar_tensor(0, result.options()));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native<at::_ops::_ctc_loss, ctc_loss>(m);
  register_native<at::_ops::_ctc_loss_backward, ctc_loss_backward>(m);
  register_native<at::_ops::_ctc_loss_Tensor, at::native::ctc_loss_tensor>(m);
  register_native<at::_ops::_ctc_loss_backward_Tensor, at::native::ctc_loss_backward_tensor>(m);
}

}  // namespace
}  // namespace torch_npu::ctc_loss_cpp
