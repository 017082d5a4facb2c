"""Frozen inference: torch._inductor.config.freezing on npu."""

import pytest
import torch
import torch._dynamo
import torch._inductor.compile_fx  # brings torch_npu.compile.backend.inductor
from torch import nn
from torch._inductor import config
from torch._inductor.utils import run_and_get_code

import torch_npu
from tests.support import small_models


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch_npu.fallback.reset()
    torch.manual_seed(0)
    with config.patch(freezing=True, force_disable_caches=True), torch.no_grad():
        yield


def compiled(model, *inputs):
    """The result, the generated code and the commands of a call."""
    run = torch.compile(model, fullgraph=True)
    result, codes = run_and_get_code(run, *inputs)
    with torch_npu.native.counting():
        run(*inputs)
        torch.npu.synchronize()
    assert not torch_npu.fallback.report()
    return result, "\n".join(codes), torch_npu.native.report()


def test_batch_norms_of_resnet18_are_gone():
    model = small_models.ResNet18(width=16, classes=10).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 2)
            module.weight.uniform_(0.5, 1.5)
            module.bias.normal_(0, 0.2)
    image = torch.randn(2, 3, 32, 32)
    want = model(image)
    model.npu()
    with config.patch(freezing=False):
        _, _, before = compiled(model, image.npu())
    torch._dynamo.reset()
    got, code, after = compiled(model, image.npu())
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)
    assert "batch_norm" in str(before) and "batch_norm" not in str(after) and "rsqrt" not in code
    assert sum(after.values()) <= sum(before.values())


def test_constants_are_computed_once():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 16))
            self.scale = nn.Parameter(torch.randn(8, 1))

        def forward(self, x):
            return torch.relu(x @ (self.weight.tanh() * self.scale.exp()).t())

    model, x = Scaled(), torch.randn(4, 16)
    want = model(x)
    got, _, commands = compiled(model.npu(), x.npu())
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)
    assert sum(commands.values()) == 1, commands


class Conv1D(nn.Module):
    """The linear layer of GPT-2: its weight is [inputs, outputs]."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(32, 48)), nn.Parameter(torch.randn(48))

    def forward(self, x):
        return torch.addmm(self.bias, x, self.weight)


@pytest.mark.parametrize("rows, strides", [(4, "(1, 32)"), (65, "(48, 1)")])
def test_weights_lie_as_products_with_few_rows_like_them(rows, strides):
    model, x = Conv1D(), torch.randn(rows, 32)
    want = model(x)
    got, code, commands = compiled(model.npu(), x.npu())
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)
    assert sum(commands.values()) == 1 and f"_frozen_param0', 0, {strides}" in code.replace("in_ptr1", "_frozen_param0")


def test_parameters_that_change_are_not_frozen():
    """Statistics that a forward pass in training mode writes stay inputs."""
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)).npu()
    run = torch.compile(model, fullgraph=True)
    x = torch.randn(16, 8).npu()
    run(x)
    first = model[1].running_mean.clone()
    run(x * 3)
    assert not torch.equal(first, model[1].running_mean)
