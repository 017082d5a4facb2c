"""torch.compile: a convolution is one CONV with what stands behind it as its epilogue, and so is its input gradient."""

import collections

import pytest
import torch
import torch._dynamo
from torch import nn
from torch._inductor.utils import run_and_get_code
from torch.nn import functional as F

import torch_npu
from torch_npu.bench import networks

pytestmark = pytest.mark.usefixtures("nothing_cached")


def kinds(codes) -> dict[str, int]:
    """Kernels of generated code by kind; aten convolutions as `aten`."""
    found: collections.Counter[str] = collections.Counter()
    for code in codes:
        for line in code.splitlines():
            if " = npu_kernel(" in line:
                found[line.split("', '")[1].split("'")[0]] += 1
            if not line.startswith("#") and (
                "extern_kernels.convolution(" in line or "aten.convolution_backward.default(" in line
            ):
                found["aten"] += 1
    return dict(found)


def check(fn, *args, tolerance=1e-5, dynamic=None, **expected):
    """Compares with float64 on the CPU; returns the result on npu."""
    given = [a.npu() if isinstance(a, torch.Tensor) else a for a in args]
    got, codes = run_and_get_code(torch.compile(fn, fullgraph=True, dynamic=dynamic), *given)
    wide = [a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    for g, w, e in zip(*map(torch.utils._pytree.tree_leaves, (got, fn(*wide), fn(*given))), strict=True):
        assert g.dtype == e.dtype and g.stride() == e.stride()
        torch.testing.assert_close(g.cpu().double(), w.double(), rtol=tolerance, atol=tolerance * 20)
    assert not torch_npu.fallback.report()
    if expected:
        assert kinds(codes) == expected
    return got


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.down = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 else None
        for bn in (self.bn1, self.bn2):
            bn.running_mean.normal_()
            bn.running_var.uniform_(0.5, 2)

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.down is None else self.down(x)))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("inputs", "outputs", "stride", "size"), [(8, 8, 1, 6), (16, 32, 2, 9), (32, 32, 1, 2)])
def test_a_block_of_resnet_is_its_convolutions(inputs, outputs, stride, size, last):
    model = Block(inputs, outputs, stride).eval()
    x = torch.randn(3, inputs, size, size)
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    with torch.no_grad():
        want = model(x)
        got, codes = run_and_get_code(torch.compile(model.npu(), fullgraph=True), x.npu())
        assert got.stride() == model(x.npu()).stride()
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-4)
    assert kinds(codes) == {"conv": 2 + (stride > 1)}


def test_resnet18_has_no_maps_between_its_convolutions():
    model, x = networks.ResNet18(10, width=16).eval(), torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        want = model(x)
        compiled = torch.compile(model.npu(), fullgraph=True)
        torch.testing.assert_close(compiled(x.npu()).cpu(), want, rtol=1e-4, atol=1e-4)
        with torch_npu.native.counting():
            compiled(x.npu())
            torch.npu.synchronize()
    commands = torch_npu.native.report()
    convolutions = sum(isinstance(m, nn.Conv2d) for m in model.modules())
    assert sum(count for name, count in commands.items() if "convolution" in name) == convolutions
    assert sum(commands.values()) <= convolutions + 4  # the pooling in front, the mean, the last layer
    assert not any(name.startswith("aten::") for name in commands)


def conv(rank):
    return {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[rank]


def turned(rank):
    return {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}[rank]


IMAGES = {1: (2, 6, 11), 2: (2, 6, 9, 7), 3: (2, 6, 5, 4, 6)}
WINDOWS = [
    {},
    {"padding": 1},
    {"stride": 2, "padding": 1},
    {"dilation": 2, "padding": 2},
    {"groups": 2},
    {"groups": 6, "padding": 1},
]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_windows(rank, window):
    x, bias = torch.randn(IMAGES[rank]), torch.randn(12)
    weight = torch.randn(12, 6 // window.get("groups", 1), *[3] * rank) / 4
    check(lambda x, w, b: F.gelu(conv(rank)(x, w, b, **window)) * 2, x, weight, bias, conv=1)


@pytest.mark.parametrize("window", [*WINDOWS[:5], {"stride": 2, "padding": 1, "output_padding": 1}], ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_transposed_windows(rank, window):
    x, groups = torch.randn(IMAGES[rank]), window.get("groups", 1)
    weight, bias = torch.randn(6, 12 // groups, *[3] * rank) / 4, torch.randn(12)
    check(lambda x, w, b: torch.relu(turned(rank)(x, w, b, **window)) + 1, x, weight, bias, conv=1)


X, W = torch.Size((2, 4, 6, 5)), torch.Size((4, 4, 3, 3))
FOLLOWED = {
    "two users": (lambda c, x: (c.relu(), c * 2), 1),
    "itself and a user": (lambda c, x: (c, c.relu()), 1),
    "itself": (lambda c, x: c, 1),
    "changed in place": (lambda c, x: c.mul_(2).relu_(), 1),
    "its own input": (lambda c, x: (c + x).relu() + x, 1),
    "by column": (lambda c, x: c * x[0, 0, 0], 1),
    "by image": (lambda c, x: c + x[:, :1, :1, :1], 1),
    "by channel and line": (lambda c, x: c * x[:1, :, :, :1], 1),
    "a larger result": (lambda c, x: c.unsqueeze(0) + torch.stack([x, x + 1]), 3),
    "backwards": (lambda c, x: c + x.flip(-1), 1),
    "turned": (lambda c, x: (c + 1).permute(0, 2, 3, 1).contiguous() * 2, 2),
    "flattened": (lambda c, x: c.flatten(1).sigmoid(), 1),
    "halves": (lambda c, x: c[:, :2] * c[:, 2:].sigmoid(), 2),
    "reduced": (lambda c, x: c.relu().sum((2, 3)), None),
    "looked up": (lambda c, x: c + x[:, torch.tensor([3, 0, 2, 1], device=x.device)], None),
    "coordinates": (lambda c, x: c + torch.arange(5, device=x.device), 1),
    "chosen": (lambda c, x: torch.where(c > x, c, x), 1),
    "other type": (lambda c, x: (c * 3).to(torch.int32).to(x.dtype), 1),
}


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", FOLLOWED)
def test_what_follows(name, last):
    after, kernels = FOLLOWED[name]
    x, weight = torch.randn(X), torch.randn(W) / 3
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    if name == "other type":
        x, weight = (3 * x).round(), weight.sign()  # exact in every type

    def fn(x, w):
        return after(F.conv2d(x, w, padding=1), x)

    given = x.npu(), weight.npu()
    got, codes = run_and_get_code(torch.compile(fn, fullgraph=True), *given)
    for g, w, e in zip(*map(torch.utils._pytree.tree_leaves, (got, fn(x, weight), fn(*given))), strict=True):
        assert g.shape == w.shape and g.stride() == e.stride()
        torch.testing.assert_close(g.cpu(), w, rtol=1e-4, atol=1e-5)
    found = kinds(codes)
    assert found["conv"] == 1 and "aten" not in found
    if kernels is not None and not last:
        assert sum(found.values()) == kernels, found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_types(dtype):
    x, weight, bias = (t.to(dtype) for t in (torch.randn(2, 16, 6, 5), torch.randn(32, 16, 3, 3) / 12, torch.randn(32)))

    def fn(x, w, b):
        return torch.relu(F.conv2d(x, w, b, padding=1) * 0.5 + b.view(-1, 1, 1))

    check(fn, x, weight, bias, conv=1, tolerance=1e-5 if dtype == torch.float64 else 2e-2)


def test_one_kernel_for_all_sizes():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding="same"), nn.Sigmoid()).npu()
    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    counter = torch._dynamo.utils.counters
    counter.clear()
    with torch.no_grad():
        for shape in ((2, 3, 8, 10), (5, 3, 8, 10), (5, 3, 13, 17), (2, 3, 30, 9)):
            x = torch.randn(shape).npu()
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
    assert counter["stats"]["unique_graphs"] == 1


def test_one_command_for_all_batches():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU()).npu()
    compiled = torch.compile(model, fullgraph=True)
    torch._dynamo.utils.counters.clear()
    for batch in (2, 5, 3):
        x = torch.randn(batch, 3, 8, 10).npu()
        torch._dynamo.mark_dynamic(x, 0)
        if batch == 2:
            got, codes = run_and_get_code(compiled, x)
            assert [kinds([code]) for code in codes] == [{"conv": 1}, {"conv": 1, "reduce": 1}]
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.skipif(torch.__version__ < "2.13", reason="2.11 takes strides of what is kept for the gradient as numbers")
def test_gradients_where_all_sizes_are_free():
    def fn(x, w):
        return F.conv2d(torch.cat([x, x], -1)[..., 1 : 1 + x.shape[-1]], w, padding=1).sin()

    compiled, weight = torch.compile(fn, dynamic=True), torch.randn(2, 2, 3, 3).npu().requires_grad_()
    for n in range(3):
        x = torch.randn(1 + n, 2, 4 + n, 5 + n).npu().requires_grad_()
        gradients = (torch.autograd.grad(f(x, weight).sum(), (x, weight)) for f in (compiled, fn))
        for got, expected in zip(*gradients, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_no_images():
    compiled = torch.compile(lambda x, w: F.conv2d(x, w).relu(), dynamic=True, fullgraph=True)
    weight = torch.randn(4, 3, 3, 3).npu()
    for batch in (3, 2, 0):
        assert compiled(torch.randn(batch, 3, 5, 5).npu(), weight).shape == (batch, 4, 3, 3)


def test_what_is_no_float_is_left_to_aten():
    x, w = torch.randint(-5, 5, (2, 3, 6, 6)), torch.randint(-3, 3, (4, 3, 3, 3))
    got, codes = run_and_get_code(torch.compile(lambda x, w: F.conv2d(x, w) + 1, fullgraph=True), x.npu(), w.npu())
    assert torch.equal(got.cpu(), (F.conv2d(x.double(), w.double()) + 1).long()) and "conv" not in kinds(codes)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_gradients(transposed, last):
    """The gradient of relu and the sum of gradients are in the command of the input gradient. Those of the two weights
    are one kernel, called twice."""
    op = F.conv_transpose2d if transposed else F.conv2d
    x, w1, w2 = torch.randn(2, 8, 7, 6), torch.randn(8, 8, 3, 3) / 6, torch.randn(8, 8, 3, 3) / 6
    x = x.contiguous(memory_format=torch.channels_last) if last else x

    def fn(x, w1, w2):
        y = op(x, w1, padding=1).relu()
        return op(y, w2, padding=1) + y

    def gradients(fn, *args):
        args = [a.detach().requires_grad_() for a in args]
        return torch.autograd.grad(fn(*args).square().sum(), args)

    want = gradients(fn, x.double(), w1.double(), w2.double())
    eager = gradients(fn, x.npu(), w1.npu(), w2.npu())
    got, codes = run_and_get_code(gradients, torch.compile(fn, fullgraph=True), x.npu(), w1.npu(), w2.npu())
    for g, w, e in zip(got, want, eager, strict=True):
        assert g.stride() == e.stride()
        torch.testing.assert_close(g.cpu().double(), w, rtol=1e-4, atol=1e-4 * float(w.abs().max()))
    forward, backward = (kinds([code]) for code in codes)
    assert forward == {"conv": 2}
    assert backward["conv"] == 3 and "aten" not in backward and backward.get("map", 0) <= 1


@pytest.mark.parametrize("groups, last", [(1, False), (1, True), (2, False), (8, False)])
def test_what_follows_the_gradient_of_a_weight_is_its_epilogue(groups, last):
    """Scaled and stored in another type, as with mixed precision."""
    layout = torch.channels_last if last else torch.contiguous_format
    shapes = (2, 8, 7, 6), (2, 8, 6, 5), (8, 8 // groups, 2, 2)
    grad, x, weight = (torch.randn(s).contiguous(memory_format=layout) for s in (shapes[1], shapes[0], shapes[2]))

    def fn(grad, x, weight):
        rest = [1, 1], [0, 0], [1, 1], False, [0, 0], groups, [False, True, True]
        _, of_weight, of_bias = torch.ops.aten.convolution_backward(grad, x, weight, [8], *rest)
        return (of_weight * 0.5).double() + weight, of_bias

    got, codes = run_and_get_code(torch.compile(fn, fullgraph=True), grad.npu(), x.npu(), weight.npu())
    for ours, wanted in zip(got, fn(grad.double(), x.double(), weight.double()), strict=True):
        torch.testing.assert_close(ours.cpu().double(), wanted, rtol=1e-5, atol=1e-4)
    assert got[0].dtype == torch.float64 and got[0].stride() == weight.stride()
    assert kinds(codes) == {"conv": 1, "reduce": 1}


def test_a_bias_whose_weight_is_frozen_is_a_sum():
    x, weight = torch.randn(2, 3, 6, 5).npu(), torch.randn(4, 3, 3, 3).npu()
    bias = torch.randn(4).npu().requires_grad_()

    def gradient(op):
        return torch.autograd.grad(op(x, weight, bias).sin().sum(), bias)[0]

    got, codes = run_and_get_code(gradient, torch.compile(F.conv2d, fullgraph=True))
    torch.testing.assert_close(got, gradient(F.conv2d), rtol=1e-5, atol=1e-5)
    assert [kinds([code]) for code in codes] == [{"conv": 1}, {"reduce": 1}]


def test_replays_and_tuning():
    model, x = Block(8, 8, 1).eval().npu(), torch.randn(2, 8, 6, 6).npu()
    with torch.no_grad():
        want = model(x)
        for mode in ("reduce-overhead", "max-autotune"):
            torch._dynamo.reset()
            compiled = torch.compile(model, mode=mode)
            for _ in range(4):
                torch.testing.assert_close(compiled(x).clone(), want, rtol=1e-5, atol=1e-5)


def test_explanation_counts_the_convolution():
    said = torch_npu.compile.explain(Block(8, 8, 1).eval().npu(), torch.randn(2, 8, 6, 6).npu())
    assert said.compiled.total == 2 < said.eager.total and "convolution" in str(said)
