"""What the backward pass reads, stores and computes again."""

import re

import torch
import torch._dynamo
from torch._inductor.utils import run_and_get_code
from torch.nn import functional as F

from tests.support.compiled import check, to_cpu


def test_the_gradient_of_a_batch_norm_walks_its_rows_twice():
    def gradients(x, weight, bias):
        normed = F.batch_norm(x, None, None, weight, bias, True)
        return torch.autograd.grad((F.relu(normed) * normed.detach().cos()).sum(), (x, weight, bias))

    given = torch.randn(4, 6, 8, 8), torch.rand(6) + 0.5, torch.randn(6)
    expected = gradients(*(t.clone().requires_grad_() for t in given))
    ours = [t.npu().requires_grad_() for t in given]
    result, codes = run_and_get_code(torch.compile(gradients), *ours)
    torch.testing.assert_close(to_cpu(result), expected, rtol=1e-4, atol=1e-4)
    (kernel,) = [k for k in codes[-1].split("npu_kernel(") if "batch_norm_backward" in k and "fold" in k]
    assert kernel.count("each:") == 2 and kernel.count("fold sum") == 2, kernel


def layers_and_code(*modules):
    """The code of the forward and the backward pass of `modules`."""
    model, x = torch.nn.Sequential(*modules).npu(), torch.randn(24, 48).npu().requires_grad_()
    _, codes = run_and_get_code(lambda: torch.compile(model)(x).square().sum().backward())
    return codes


def test_gradients_of_weights_come_before_the_gradient_that_goes_on():
    _, backward = layers_and_code(*(torch.nn.Linear(48, 48) for _ in range(3)))
    calls = re.findall(r"^        (npu_fused\w+)\(", backward, re.MULTILINE)
    kinds = ["sum" if "_sum_" in name else "mm" for name in calls]
    assert kinds == ["sum", "mm", "mm"] * 3, calls


def test_a_norm_keeps_its_input_for_the_backward_pass():
    """What it makes of it besides its result is not stored: the backward pass computes it again."""
    forward, _ = layers_and_code(torch.nn.Linear(48, 48), torch.nn.LayerNorm(48), torch.nn.Linear(48, 48))
    (norm,) = [k for k in forward.split("npu_kernel(") if "fold welford" in k]
    each = norm.split("each:")[-1].split("'''")[0]
    assert each.count("store") == 1, norm


def test_what_only_a_reduction_reads_is_no_epilogue():
    """The gradient of a norm folds its own products of the gradient that comes in, which the product before it stores
    for others anyway."""

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.linear = torch.nn.LayerNorm(48), torch.nn.Linear(48, 48)

        def forward(self, x):
            normed = self.norm(x)
            return normed + self.linear(normed)

    _, backward = layers_and_code(Block())
    stores = [k.count("store ") for k in backward.split("npu_kernel(") if "'matmul'" in k and "acc : f32" in k]
    assert stores == [1], backward
    (norm,) = [k for k in backward.split("npu_kernel(") if k.count("each:") == 2]
    assert norm.count("fold sum") == 2 and norm.count("store ") == 1, norm


def test_a_gated_unit_stores_no_silu():
    """Nor does its gradient compute the sigmoid twice: silu is made of the one that its own gradient uses."""

    class Gated(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.up = torch.nn.Linear(48, 32, bias=False), torch.nn.Linear(48, 32, bias=False)

        def forward(self, x):
            return F.silu(self.gate(x)) * self.up(x)

    codes = layers_and_code(Gated(), torch.nn.Linear(32, 48))
    assert [code.count(" = sigmoid ") for code in codes] == [1, 1]
    (gated,) = [k for k in codes[0].split("npu_kernel(") if " = sigmoid " in k]
    assert gated.count("  store ") == 2, gated  # what `up` yields, and the product
    x = torch.randn(5, 7)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        check(F.silu, x.to(dtype), kernels=1)


def test_functions_are_kept_for_the_backward_pass():
    def gradient(x):
        y = torch.tanh(x * 0.5) * torch.sigmoid(x)
        return torch.autograd.grad((y * y).sum(), x)[0]

    x = torch.randn(32, 64, requires_grad=True)
    again = x.detach().npu().requires_grad_()

    def step():
        y = torch.compile(lambda x: torch.tanh(x * 0.5) * torch.sigmoid(x))(again)
        return torch.autograd.grad((y * y).sum(), again)[0]

    result, codes = run_and_get_code(step)
    torch.testing.assert_close(result.cpu(), gradient(x), rtol=1e-5, atol=1e-5)
    assert len(codes) == 2 and [sum(code.count(f" = {f} ") for code in codes) for f in ("tanh", "sigmoid")] == [1, 1]


def test_dropout_drops_the_same_in_backward():
    w = torch.ones(1000, requires_grad=True, device="npu")
    out = torch.compile(lambda w: F.dropout(w, 0.3))(w)
    out.sum().backward()
    torch.testing.assert_close(w.grad.cpu(), out.detach().cpu())
