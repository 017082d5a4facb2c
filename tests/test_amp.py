"""Mixed precision: which types autocast chooses, and the gradient scaler."""

import pytest
import torch


def test_supported_types():
    assert {torch.float16, torch.bfloat16} <= set(torch.npu.get_amp_supported_dtype())
    assert torch.npu.is_bf16_supported()
    assert torch.amp.is_autocast_available("npu")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_matrix_products_run_in_the_lower_type(dtype):
    a = torch.ones(4, 4, device="npu")
    with torch.autocast("npu", dtype=dtype):
        assert torch.mm(a, a).dtype == dtype
        assert torch.nn.functional.linear(a, a).dtype == dtype
    assert torch.mm(a, a).dtype == torch.float32


def test_sensitive_ops_run_in_float32():
    x = torch.ones(4, 4, device="npu", dtype=torch.float16)
    with torch.autocast("npu"):
        assert torch.softmax(x, -1).dtype == torch.float32
        assert torch.exp(x).dtype == torch.float32


def test_mixed_arguments_are_promoted_to_the_widest():
    a = torch.ones(4, device="npu", dtype=torch.float16)
    b = torch.ones(4, device="npu", dtype=torch.float32)
    with torch.autocast("npu"):
        assert torch.stack([a, b]).dtype == torch.float32


def test_losses_that_overflow_in_half_are_refused():
    p, t = torch.full((4,), 0.5, device="npu"), torch.ones(4, device="npu")
    with torch.autocast("npu"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        torch.nn.functional.binary_cross_entropy(p, t)


def test_autocast_can_be_switched_off_inside():
    a = torch.ones(4, 4, device="npu")
    with torch.autocast("npu"), torch.autocast("npu", enabled=False):
        assert torch.mm(a, a).dtype == torch.float32


def test_module_names_of_cuda():
    a = torch.ones(4, 4, device="npu")
    with torch.npu.amp.autocast(dtype=torch.bfloat16):
        assert torch.mm(a, a).dtype == torch.bfloat16


def test_custom_function_casts_its_inputs():
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.npu.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x):
            assert x.dtype == torch.float32
            return x * 2

        @staticmethod
        @torch.npu.amp.custom_bwd
        def backward(ctx, gradient):
            return gradient * 2

    x = torch.ones(3, device="npu", dtype=torch.float16, requires_grad=True)
    with torch.autocast("npu"):
        y = Double.apply(x)
    y.sum().backward()
    assert x.grad.cpu().tolist() == [2.0, 2.0, 2.0]


def step(model, scaler, optimizer, x) -> None:
    optimizer.zero_grad()
    with torch.autocast("npu", dtype=torch.float16):
        loss = model(x).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


def test_scaler_trains_and_skips_a_step_that_overflows():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.npu.amp.GradScaler(init_scale=1024.0)
    start = model.weight.detach().cpu().clone()
    step(model, scaler, optimizer, torch.ones(2, 4, device="npu"))
    trained = model.weight.detach().cpu().clone()
    assert not torch.equal(trained, start) and scaler.get_scale() == 1024.0
    step(model, scaler, optimizer, torch.full((2, 4), float("inf"), device="npu"))
    assert torch.equal(model.weight.detach().cpu(), trained)
    assert scaler.get_scale() == 512.0


def test_scaler_unscales_to_the_true_gradient():
    w = torch.nn.Parameter(torch.ones(3, device="npu"))
    optimizer = torch.optim.SGD([w], lr=1.0)
    scaler = torch.amp.GradScaler("npu", init_scale=64.0)
    scaler.scale((w * torch.tensor([1.0, 2.0, 3.0], device="npu")).sum()).backward()
    scaler.unscale_(optimizer)
    assert w.grad.cpu().tolist() == [1.0, 2.0, 3.0]
