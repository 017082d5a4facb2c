"""Compiled training: two steps of each model are those of eager mode, in one graph and with fewer commands."""

import copy

import pytest
import torch
import torch._dynamo
from torch._dynamo.utils import counters

import torch_npu
from tests.support import small_models
from tests.support.compiled import to_npu


def step(model, run, args, kwargs):
    """Loss and gradients, on the CPU; the parameters follow."""
    model.zero_grad()
    loss = run(*args, **kwargs)
    loss.backward()
    gradients = {n: p.grad.cpu() for n, p in model.named_parameters() if p.grad is not None}
    with torch.no_grad():
        for p in model.parameters():
            if p.grad is not None:
                p -= 0.05 * p.grad
    return loss.detach().cpu(), gradients


def commands(model, run, args, kwargs) -> int:
    """Of one step, without those that would add to gradients of another."""
    model.zero_grad()
    with torch_npu.native.counting():
        run(*args, **kwargs).backward()
        torch.npu.synchronize()
    return sum(torch_npu.native.report().values())


def graphs_on_cpu(model, args, kwargs) -> int:
    torch._dynamo.reset()
    return torch._dynamo.explain(model)(*args, **kwargs).graph_count


@pytest.mark.parametrize("name", ["lenet", "resnet18", "bert", "vit", "llama", "qwen2"])
def test_training(name):
    torch.manual_seed(0)
    reference, args, kwargs = getattr(small_models, name)()
    for module in reference.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model, given = copy.deepcopy(reference).npu(), (to_npu(args), to_npu(kwargs))
    eager = copy.deepcopy(model)
    usual = commands(eager, eager, *given)
    compiled = torch.compile(model)
    torch_npu.fallback.reset()
    counters.clear()
    for number in range(2):
        expected, gradients = step(reference, reference, args, kwargs)
        loss, found = step(model, compiled, *given)
        torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-4)
        if number == 0:  # later a model may be compiled again for reasons of its own
            graphs = counters["stats"]["unique_graphs"]
        largest = max(g.abs().max() for g in gradients.values())
        for parameter, gradient in gradients.items():
            # That of an attention's key bias is zero but for rounding.
            scale = gradient.abs().max().clamp(min=1e-3 * largest)
            torch.testing.assert_close(
                found[parameter] / scale, gradient / scale, rtol=1e-3, atol=1e-4, msg=f"gradient of {parameter}"
            )
    assert not torch_npu.fallback.report()
    fused = commands(model, compiled, *given)
    assert fused <= (0.6 if name == "qwen2" else 0.9) * usual, f"{fused} commands, eager mode has {usual}"
    assert graphs == 1 or graphs <= graphs_on_cpu(reference, args, kwargs)
