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


def test_scaler_unscales_to_the_true_gradient():
    w = torch.nn.Parameter(torch.ones(3, device="npu"))
    optimizer = torch.optim.SGD([w], lr=1.0)
    scaler = torch.amp.GradScaler("npu", init_scale=64.0)
    scaler.scale((w * torch.tensor([1.0, 2.0, 3.0], device="npu")).sum()).backward()
    scaler.unscale_(optimizer)
    assert w.grad.cpu().tolist() == [1.0, 2.0, 3.0]


def test_a_nan_loss_skips_the_step_and_lowers_the_scale():
    w = torch.nn.Parameter(torch.ones(3, device="npu"))
    optimizer = torch.optim.AdamW([w], lr=0.1, fused=True)
    scaler = torch.amp.GradScaler("npu", init_scale=64.0)
    for factor, scale in ((float("nan"), 32.0), (float("inf"), 16.0), (1.0, 16.0)):
        before = w.detach().clone()
        optimizer.zero_grad()
        scaler.scale((w * factor).sum()).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_([w], 1.0)
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == scale
        assert torch.equal(w, before) == (factor != 1.0)


def test_scaled_halves_learn_as_float32_does():
    def losses(mixed: bool) -> list[float]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 4)).to("npu")
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("npu", enabled=mixed, init_scale=2.0**10)
        x, y = torch.randn(16, 8).to("npu"), torch.randint(4, (16,)).to("npu")
        seen = []
        for _ in range(30):
            optimizer.zero_grad()
            with torch.autocast("npu", torch.float16, enabled=mixed):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            seen.append(loss.item())
        return seen

    assert losses(True) == pytest.approx(losses(False), rel=0.02)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("mixed", [True, False])
def test_checkpointing_repeats_dropout_and_autocast(reentrant, mixed):
    """The same gradients as without, and the same random numbers afterwards."""
    from torch.utils.checkpoint import checkpoint

    def compute(saved: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.GELU()).to("npu")
        x = torch.ones(4, 8, device="npu", requires_grad=True)
        with torch.autocast("npu", torch.bfloat16, enabled=mixed):
            y = checkpoint(model, x, use_reentrant=reentrant) if saved else model(x)
        before = torch.rand(3, device="npu")
        y.float().sum().backward()
        return [y, x.grad, model[0].weight.grad, before, torch.rand(3, device="npu")]

    for mine, plain in zip(compute(True), compute(False), strict=True):
        assert torch.equal(mine, plain)


def test_checkpointing_saves_memory():
    from torch.utils.checkpoint import checkpoint_sequential

    model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()) for _ in range(16)))
    model.to("npu")

    def peak(saved: bool) -> int:
        x = torch.ones(1024, 64, device="npu", requires_grad=True)
        torch.npu.reset_peak_memory_stats()
        start = torch.npu.memory_allocated()
        y = checkpoint_sequential(model, 4, x, use_reentrant=False) if saved else model(x)
        y.sum().backward()
        model.zero_grad()
        return torch.npu.max_memory_allocated() - start

    assert peak(True) < 0.6 * peak(False)


def test_out_of_memory_in_the_middle_of_a_step_leaves_a_smaller_batch_working(python):
    lines = python(
        """
        import torch
        torch.manual_seed(0)
        model = torch.nn.Sequential(*(torch.nn.TransformerEncoderLayer(64, 4, 256, 0.0) for _ in range(2))).to("npu")
        optimizer = torch.optim.AdamW(model.parameters())

        def step(batch):
            optimizer.zero_grad()
            loss = model(torch.ones(1, batch, 64, device="npu")).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.item()

        first = step(256)
        held = torch.npu.memory_allocated()
        try:
            step(16384)
        except torch.OutOfMemoryError as error:
            print("out of memory:", error)
        torch.npu.empty_cache()
        assert step(256) != first
        assert torch.npu.memory_allocated() <= held
        print("works")
        """,
        TORCH_NPU_DRIVER="cmodel:memory=64M",
    ).lines()
    assert lines[0].startswith("out of memory:") and lines[-1] == "works"
