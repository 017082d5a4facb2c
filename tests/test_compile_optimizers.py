"""Compiled optimizer steps: the curve of the CPU in eager mode, and nothing of them on the CPU."""

import pytest
import torch

import torch_npu

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
}


def train(name, device, compiled):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    x = torch.randn(32, 8)
    model, x = model.to(device), x.to(device)
    optimizer = OPTIMIZERS[name](model.parameters())
    step = torch.compile(optimizer.step) if compiled else optimizer.step
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = (model(x) - x[:, :1]).pow(2).mean()
        loss.backward()
        step()
        losses.append(loss.item())
    return losses, optimizer


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_compiled_step(name):
    torch._dynamo.reset()
    torch_npu.fallback.reset()
    got, optimizer = train(name, "npu", compiled=True)
    assert not torch_npu.fallback.report()
    if name != "adagrad":  # makes its state when it is made itself, before anything is compiled
        kept = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
        assert all(t.device.type == "npu" for t in kept)
    expected, _ = train(name, "cpu", compiled=False)
    assert got == pytest.approx(expected, rel=1e-4)
