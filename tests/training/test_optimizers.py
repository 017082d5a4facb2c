"""Optimizers on npu: fused steps and the gradient scaler, against the CPU and without fallback."""

import copy
import itertools

import pytest
import torch
from torch import nn

import torch_npu

TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
LIMITS = {
    torch.float32: {"rtol": 2e-6, "atol": 5e-7},
    torch.float64: {"rtol": 1e-12, "atol": 1e-14},
    torch.bfloat16: {"rtol": 3e-2, "atol": 2e-2},
    torch.float16: {"rtol": 4e-3, "atol": 2e-3},
}
SHAPES = [(5,), (3, 4), (2, 3, 4), (), (0,), (33, 70)]

OPTIMIZERS = {
    "adam": (torch.optim.Adam, {"lr": 0.01}),
    "adam_decay": (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.95)}),
    "adam_amsgrad": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True, "maximize": True}),
    "adam_small_beta": (torch.optim.Adam, {"lr": 0.01, "betas": (0.3, 0.9)}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    "adamw_amsgrad": (torch.optim.AdamW, {"lr": 0.01, "amsgrad": True}),
    "adamw_maximize": (torch.optim.AdamW, {"lr": 0.01, "maximize": True}),
    "adamw_tensor_lr": (torch.optim.AdamW, {"lr": torch.tensor(0.01)}),
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "sgd_decay": (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    "sgd_momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.2}),
    "sgd_nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.05}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1}),
    "adagrad_decay": (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "maximize": True}),
}


def train(kind, options, device, dtype, shapes=SHAPES, wide=False, **more):
    """Parameters and state after a few steps. With `wide`, values of `dtype` are computed with in float32."""
    torch.manual_seed(0)
    own = torch.float32 if wide else dtype

    def numbers(*shape):
        return torch.randn(shape).to(dtype).to(device, own)

    parameters = [torch.nn.Parameter(numbers(*shape)) for shape in shapes]
    # One that does not lie in memory as it is indexed.
    parameters.append(torch.nn.Parameter(numbers(4, 6).t()))
    optimizer = kind(parameters, **copy.deepcopy(options), **more)
    for _ in range(4):
        for p in parameters:
            p.grad = torch.empty_like(p).copy_(numbers(*p.shape))
        optimizer.step()
    state = [
        value.detach().cpu() for p in parameters for _, value in sorted(optimizer.state[p].items()) if value is not None
    ]
    return [p.detach().cpu() for p in parameters], state


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", TYPES)
def test_fused_step_is_that_of_the_cpu(name, dtype):
    kind, options = OPTIMIZERS[name]
    # In half precision PyTorch's fused CPU steps are not all right (SGD leaves parameters as they were).
    wide = dtype in (torch.bfloat16, torch.float16)
    want, want_state = train(kind, options, "cpu", dtype, wide=wide, fused=True)
    torch_npu.fallback.reset()
    got, got_state = train(kind, options, "npu", dtype, fused=True)
    assert torch_npu.fallback.report() == {}
    assert all(p.dtype == dtype for p in got)
    for mine, theirs in zip(got + got_state, want + want_state, strict=True):
        torch.testing.assert_close(mine.to(theirs.dtype), theirs, **LIMITS[dtype])


def test_fused_step_takes_a_gradient_that_lies_otherwise_than_its_parameter():
    """PyTorch's CPU kernel reads both in memory order; the step without it is what is meant."""
    results = []
    for fused in (False, True):
        parameter = torch.nn.Parameter(torch.arange(12.0, device="npu").reshape(4, 3).t())
        parameter.grad = torch.arange(12.0, device="npu").reshape(3, 4)
        assert parameter.stride() != parameter.grad.stride()
        torch.optim.AdamW([parameter], lr=0.1, fused=fused, foreach=False if not fused else None).step()
        results.append(parameter.detach().cpu())
    torch.testing.assert_close(results[1], results[0])


def test_fused_step_is_one_command_per_parameter():
    parameters = [torch.nn.Parameter(torch.randn(8, device="npu")) for _ in range(3)]
    optimizer = torch.optim.AdamW(parameters, fused=True)
    for p in parameters:
        p.grad = torch.randn(8, device="npu")
    optimizer.step()
    with torch_npu.native.counting():
        optimizer.step()
    assert torch_npu.native_report()["aten::_fused_adamw_"] == 3


@pytest.mark.parametrize("form", [{"foreach": True}, {"foreach": False}, {}])
@pytest.mark.parametrize("name", ["adam_decay", "adamw_amsgrad", "sgd_nesterov", "adagrad_decay"])
def test_other_forms_of_the_step_are_those_of_the_cpu(name, form):
    kind, options = OPTIMIZERS[name]
    want, _ = train(kind, options, "cpu", torch.float32, **form)
    torch_npu.fallback.reset()
    got, _ = train(kind, options, "npu", torch.float32, **form)
    assert torch_npu.fallback.report() == {}
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


REST = ["Adadelta", "Adafactor", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"]


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("name", REST)
def test_every_other_optimizer_runs_without_fallback(name, foreach):
    kind = getattr(torch.optim, name)
    shapes = [shape for shape in SHAPES if name != "Adafactor" or 0 not in shape]  # it takes no empty parameters
    want, _ = train(kind, {}, "cpu", torch.float32, shapes=shapes, foreach=foreach)
    torch_npu.fallback.reset()
    got, _ = train(kind, {}, "npu", torch.float32, shapes=shapes, foreach=foreach)
    assert torch_npu.fallback.report() == {}
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def fused_arguments(op, device):
    torch.manual_seed(1)
    lists = {"adam": 4, "sgd": 3, "adagrad": 3}[op]
    tensors = [[torch.rand(7, 3).to(device) + 0.5 for _ in range(2)] for _ in range(lists)]
    steps = [torch.tensor(3.0).to(device) for _ in range(2)]
    if op == "adam":
        return [*tensors, [], steps], {
            "lr": 0.1,
            "beta1": 0.9,
            "beta2": 0.99,
            "weight_decay": 0.1,
            "eps": 1e-8,
            "amsgrad": False,
            "maximize": False,
        }
    if op == "sgd":
        return tensors, {
            "weight_decay": 0.1,
            "momentum": 0.9,
            "lr": 0.1,
            "dampening": 0.0,
            "nesterov": False,
            "maximize": True,
            "is_first_step": False,
        }
    return [*tensors, steps], {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "eps": 1e-8, "maximize": False}


@pytest.mark.parametrize("op", ["adam", "sgd", "adagrad"])
@pytest.mark.parametrize("scale, found", list(itertools.product([None, 4.0], [None, 0.0, 1.0])))
def test_fused_step_with_a_gradient_scaler(op, scale, found):
    function = getattr(torch.ops.aten, f"_fused_{op}_")
    results = []
    for device in ("cpu", "npu"):
        arguments, options = fused_arguments(op, device)
        before = [[t.clone() for t in tensors] for tensors in arguments]
        for name, value in (("grad_scale", scale), ("found_inf", found)):
            options[name] = None if value is None else torch.tensor(value, device=device)
        function(*arguments, **options)
        if found == 1.0:
            assert all(torch.equal(a, b) for old, new in zip(before, arguments, strict=True) for a, b in zip(old, new))
        results.append([t.cpu() for tensors in arguments for t in tensors])
    for theirs, mine in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-6, atol=1e-7)


def test_fused_step_checks_its_lists():
    arguments, options = fused_arguments("sgd", "npu")
    with pytest.raises(RuntimeError, match="expected lists of 2 tensors, got 1"):
        torch.ops.aten._fused_sgd_(arguments[0], arguments[1][:1], arguments[2], **options)
    with pytest.raises(RuntimeError, match="one momentum buffer per parameter"):
        torch.ops.aten._fused_sgd_(arguments[0], arguments[1], [], **options)


# -- the gradient scaler --


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("bad", [None, float("inf"), float("-inf"), float("nan")])
def test_unscale_finds_what_is_not_finite(dtype, bad):
    results = []
    for device in ("cpu", "npu"):
        torch.manual_seed(0)
        grads = [
            torch.randn(40, 30).to(device, dtype).t(),
            torch.randn(7).to(device, dtype),
            torch.randn(0).to(device, dtype),
        ]
        if bad is not None:
            grads[0][17, 21] = bad
        found, inverse = torch.zeros(1, device=device), torch.full((1,), 0.125, device=device)
        torch_npu.fallback.reset()
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)
        assert torch_npu.fallback.report() == {}
        results.append([*(g.cpu() for g in grads), found.cpu()])
    assert results[1][-1].item() == (bad is not None)
    for theirs, mine in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("found", [0.0, 1.0])
@pytest.mark.parametrize("tracker", [0, 4])
@pytest.mark.parametrize("scale", [8.0, 3e38])
def test_update_scale_is_that_of_the_cpu(found, tracker, scale):
    results = []
    for device in ("cpu", "npu"):
        current, growth = (
            torch.full((1,), scale, device=device),
            torch.full((1,), tracker, dtype=torch.int32, device=device),
        )
        torch_npu.fallback.reset()
        torch._amp_update_scale_(current, growth, torch.full((1,), found, device=device), 2.0, 0.5, 5)
        assert torch_npu.fallback.report() == {}
        results.append((current.item(), growth.item()))
    assert results[0] == results[1]


@pytest.mark.parametrize("fused", [False, True])
def test_grad_scaler_skips_the_step_of_an_overflow(fused):
    model = torch.nn.Linear(3, 2, device="npu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("npu", init_scale=16.0, growth_interval=2)
    before = model.weight.detach().clone()
    for factor, expected in ((float("inf"), 8.0), (1.0, 8.0), (1.0, 16.0)):
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(1, 3, device="npu") * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == expected
        assert torch.equal(model.weight, before) == (factor != 1.0)


OF_TORCH = sorted(
    name
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
)


@pytest.mark.parametrize("name", OF_TORCH)
def test_every_optimizer_of_torch(name):
    """Five steps, then a state that goes through a file and on."""
    sparse = name == "SparseAdam"

    def compute(device):
        torch.manual_seed(0)
        layer = nn.Embedding(5, 4, sparse=True) if sparse else nn.Linear(4, 4, bias=name != "Muon")
        layer.to(device)
        x = torch.tensor([1, 3, 1], device=device) if sparse else torch.randn(8, 4).to(device)
        optimizer = getattr(torch.optim, name)(layer.parameters())

        def closure():
            optimizer.zero_grad()
            loss = layer(x).pow(2).sum()
            loss.backward()
            return loss

        for step in range(5):
            if step == 3:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            optimizer.step(closure)
        return list(layer.parameters())

    for mine, theirs in zip(compute("npu"), compute("cpu"), strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-4, atol=1e-5)
