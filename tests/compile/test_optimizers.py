"""Compiled optimizer steps: the curve of the CPU in eager mode, and nothing of them on the CPU."""

import io

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
    torch_npu.fallback.reset()
    got, optimizer = train(name, "npu", compiled=True)
    assert not torch_npu.fallback.report()
    if name != "adagrad":  # makes its state when it is made itself, before anything is compiled
        kept = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
        assert all(t.device.type == "npu" for t in kept)
    expected, _ = train(name, "cpu", compiled=False)
    assert got == pytest.approx(expected, rel=1e-4)


CHANGING = {
    "SGD": {"lr": 0.05, "momentum": 0.9, "nesterov": True},
    "Adam": {},
    "AdamW": {"amsgrad": True},
    "NAdam": {},
    "RAdam": {"lr": 0.01},
    "Adamax": {},
    "ASGD": {"t0": 2.0, "lambd": 0.01},
    "Adadelta": {},
    "Adagrad": {"lr_decay": 0.1},
    "RMSprop": {"momentum": 0.5, "centered": True},
    "Rprop": {},
    "Adafactor": {},
    "Muon": {},
}


def run_steps(name, device, plan):
    """e: a step in eager mode; c: a compiled one; l: the state is saved, and loaded by a new optimizer; m: through the
    memory of the CPU."""
    torch.manual_seed(0)
    shapes = [(6, 4), (5, 3)] if name == "Muon" else [(6, 4), (7,)]
    parameters = [torch.nn.Parameter(torch.randn(shape).to(device)) for shape in shapes]
    optimizer = getattr(torch.optim, name)(parameters, **CHANGING[name])
    for what in plan:
        if what in "lm":
            kept = io.BytesIO()
            torch.save(optimizer.state_dict(), kept)
            kept.seek(0)
            optimizer = getattr(torch.optim, name)(parameters, **CHANGING[name])
            optimizer.load_state_dict(torch.load(kept, map_location="cpu" if what == "m" else None))
            continue
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape).to(device)
        step = torch.compile(optimizer.step) if what == "c" and device == "npu" else optimizer.step
        step()
    return [parameter.detach().cpu() for parameter in parameters]


@pytest.mark.parametrize("plan", ["eecmcee", "cclee"])
@pytest.mark.parametrize("name", CHANGING)
def test_eager_and_compiled_steps_take_turns(name, plan):
    got, want = run_steps(name, "npu", plan), run_steps(name, "cpu", plan)
    for mine, theirs in zip(got, want, strict=True):
        # Muon computes in bfloat16.
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=3e-4 if name == "Muon" else 1e-5)
