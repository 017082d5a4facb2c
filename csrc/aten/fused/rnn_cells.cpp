// The element-wise part of one LSTM and GRU step. PyTorch calls these for every device but the CPU, and has kernels
// for them on GPUs only, so the fallback has nothing to fall back to: they are written in terms of other ops.
// Gate order, workspace layout and formulas are those that PyTorch's autograd expects (derivatives.yaml).
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include "csrc/aten/dispatch/optional.h"
#include "csrc/aten/dispatch/registration.h"

namespace torch_npu::rnn_cells_cpp {
namespace {

using at::Tensor;

Tensor plus(const Tensor& gates, const std::optional<Tensor>& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

// workspace: input, forget, cell, output gate, activated.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
                                             const std::optional<Tensor>& input_bias,
                                             const std::optional<Tensor>& hidden_bias) {
  const auto gates = plus(plus(input_gates + hidden_gates, input_bias), hidden_bias).chunk(4, 1);
  const Tensor in = gates[0].sigmoid(), forget = gates[1].sigmoid(), cell = gates[2].tanh(), out = gates[3].sigmoid();
  Tensor cy = forget * cx + in * cell;
  Tensor hy = out * cy.tanh();
  return {hy, cy, at::cat({in, forget, cell, out}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const std::optional<Tensor>& grad_hy_opt,
                                                      const std::optional<Tensor>& grad_cy_opt, const Tensor& cx,
                                                      const Tensor& cy, const Tensor& workspace, bool has_bias) {
  const Tensor grad_hy = given(grad_hy_opt);
  const Tensor grad_cy = given(grad_cy_opt);
  if (!grad_hy.defined() && !grad_cy.defined()) {
    return {};
  }
  const auto gates = workspace.chunk(4, 1);
  const Tensor &in = gates[0], &forget = gates[1], &cell = gates[2], &out = gates[3];
  const Tensor tanh_cy = cy.tanh();
  Tensor grad_cell_state = grad_hy.defined() ? grad_hy * out * (1 - tanh_cy * tanh_cy) : at::zeros_like(cy);
  if (grad_cy.defined()) {
    grad_cell_state = grad_cell_state + grad_cy;
  }
  const Tensor grad_out = grad_hy.defined() ? grad_hy * tanh_cy * (1 - out) * out : at::zeros_like(cy);
  Tensor grad_gates = at::cat({grad_cell_state * cell * (1 - in) * in, grad_cell_state * cx * (1 - forget) * forget,
                               grad_cell_state * in * (1 - cell * cell), grad_out},
                              1);
  return {grad_gates, grad_cell_state * forget, has_bias ? grad_gates.sum(0) : Tensor()};
}

// workspace: reset, update and new gate, activated; hx; hidden part of the new gate.
std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                    const std::optional<Tensor>& input_bias, const std::optional<Tensor>& hidden_bias) {
  const auto from_input = plus(input_gates, input_bias).chunk(3, 1);
  const auto from_hidden = plus(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor reset = (from_input[0] + from_hidden[0]).sigmoid();
  const Tensor update = (from_input[1] + from_hidden[1]).sigmoid();
  const Tensor fresh = (from_input[2] + reset * from_hidden[2]).tanh();
  return {fresh + update * (hx - fresh), at::cat({reset, update, fresh, hx, from_hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy, const Tensor& workspace,
                                                                     bool has_bias) {
  const auto saved = workspace.chunk(5, 1);
  const Tensor &reset = saved[0], &update = saved[1], &fresh = saved[2], &hx = saved[3], &hidden = saved[4];
  const Tensor grad_update = grad_hy * (hx - fresh) * (1 - update) * update;
  const Tensor grad_fresh = grad_hy * (1 - update) * (1 - fresh * fresh);
  const Tensor grad_reset = grad_fresh * hidden * (1 - reset) * reset;
  Tensor grad_input = at::cat({grad_reset, grad_update, grad_fresh}, 1);
  Tensor grad_hidden = at::cat({grad_reset, grad_update, grad_fresh * reset}, 1);
  Tensor input_bias = has_bias ? grad_input.sum(0) : Tensor();
  Tensor hidden_bias = has_bias ? grad_hidden.sum(0) : Tensor();
  return {grad_input, grad_hidden, grad_hy * update, input_bias, hidden_bias};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_function(m, "aten::_thnn_fused_lstm_cell", lstm_cell);
  register_function(m, "aten::_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  register_function(m, "aten::_thnn_fused_gru_cell", gru_cell);
  register_function(m, "aten::_thnn_fused_gru_cell_backward", gru_cell_backward);
}

}  // namespace torch_npu::rnn_cells_cpp
