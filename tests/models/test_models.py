"""Whole models: the npu's loss and every gradient are the CPU's, and nothing fell back on the way."""

import copy

import pytest
import torch
from torch import nn

import torch_npu
from tests.support.small_models import MODELS, Classify, Recurrent


def _to_npu(value):
    return value.to("npu") if isinstance(value, torch.Tensor) else value


def _step(model, args, kwargs):
    loss = model(*args, **kwargs)
    loss.backward()
    return loss.detach(), {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradients_are_those_of_the_cpu_without_fallback(name):
    torch.manual_seed(0)
    model, args, kwargs = MODELS[name]()
    model.train()
    on_npu = copy.deepcopy(model).to("npu")
    packed = name.endswith("packed")
    npu_args = [a if packed and i == 2 else _to_npu(a) for i, a in enumerate(args)]
    npu_kwargs = {key: _to_npu(value) for key, value in kwargs.items()}
    want, want_grads = _step(model, args, kwargs)

    torch_npu.fallback.reset()
    got, got_grads = _step(on_npu, npu_args, npu_kwargs)
    assert torch_npu.fallback.report() == {}

    assert got.device.type == "npu" and got.isfinite().item()
    torch.testing.assert_close(got.cpu(), want, rtol=1e-5, atol=1e-5)
    for parameter, gradient in want_grads.items():
        if gradient is None:
            assert got_grads[parameter] is None, parameter
            continue
        # Sums over many positions lose digits on both sides: the limit is a share of the tensor's own size.
        limit = 2e-4 * gradient.abs().max().item() + 1e-7
        torch.testing.assert_close(
            got_grads[parameter].cpu(), gradient, rtol=1e-3, atol=limit, msg=lambda text, p=parameter: f"{p}: {text}"
        )
    for (buffer, mine), (_, theirs) in zip(on_npu.named_buffers(), model.named_buffers(), strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, msg=lambda text, b=buffer: f"{b}: {text}")


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_dropout_between_recurrent_layers_needs_no_fallback(kind):
    torch.manual_seed(0)
    model = Classify(Recurrent(kind, batch_first=True, num_layers=2, dropout=0.5)).to("npu")
    x, labels = torch.randn(3, 9, 12, device="npu"), torch.randint(7, (3, 9), device="npu")
    torch_npu.fallback.reset()
    losses = []
    for _ in range(2):
        loss = model(labels, x)
        loss.backward()
        losses.append(loss.item())
    assert torch_npu.fallback.report() == {}
    assert losses[0] != losses[1]
    assert all(p.grad.isfinite().all().item() for p in model.parameters())
    model.eval()
    assert model(labels, x).item() == model(labels, x).item()
