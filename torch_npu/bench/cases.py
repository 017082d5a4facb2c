"""The cases of `python -m torch_npu bench ops`: one function per op, which makes its tensors and returns the call."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from torch_npu.bench.make import Make

CONTIGUOUS = ("contiguous",)
UNARY = ("contiguous", "strided")
BINARY = ("contiguous", "strided", "broadcast")


@dataclass(frozen=True)
class Case:
    family: str
    name: str
    layouts: tuple[str, ...]
    make: Callable[[Make], Callable]
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    always: str | None = None  # a type in which the case is measured whatever was asked for


CASES: list[Case] = []


def case(family: str, layouts: tuple[str, ...] = CONTIGUOUS, name: str | None = None, **more):
    def register(make):
        CASES.append(Case(family, name or make.__name__.strip("_").replace("_", " "), layouts, make, **more))
        return make

    return register


def unary(family: str, **ops: Callable) -> None:
    for name, op in ops.items():

        def make(m: Make, op=op):
            x = m.x()
            return lambda: op(x)

        case(family, UNARY, name.replace("_", " "))(make)


def binary(family: str, **ops: Callable) -> None:
    for name, op in ops.items():

        def make(m: Make, op=op):
            x, y = m.randn(*m.shape), m.y()
            return lambda: op(x, y)

        case(family, BINARY, name)(make)


def with_gradient(function: Callable, *inputs: torch.Tensor) -> Callable:
    """The call of `function` and of its gradient with respect to `inputs`."""
    gradient = torch.ones_like(function().detach())

    def call():
        with torch.enable_grad():
            return torch.autograd.grad(function(), inputs, gradient)

    return call


binary("pointwise", add=torch.add, mul=torch.mul)
unary("pointwise", relu=torch.relu, clone=lambda x: x.clone(memory_format=torch.contiguous_format))


@case("pointwise", UNARY)
def cast(m: Make):
    x, target = m.x(), torch.bfloat16 if m.dtype == torch.float32 else torch.float32
    return lambda: x.to(target, memory_format=torch.contiguous_format)


@case("pointwise", BINARY)
def add_in_place(m: Make):
    x, y = m.x(), m.y()
    return lambda: x.add_(y, alpha=0.5)


unary("functions", exp=torch.exp, tanh=torch.tanh, erf=torch.erf, sigmoid=torch.sigmoid, silu=F.silu)
unary("gelu", gelu=F.gelu, gelu_tanh=lambda x: F.gelu(x, approximate="tanh"))


@case("gelu")
def gelu_backward(m: Make):
    x = m.randn(*m.shape, grad=True)
    return with_gradient(lambda: F.gelu(x), x)


binary("where, compare", gt=torch.gt, eq=torch.eq, maximum=torch.maximum)


@case("where, compare", BINARY)
def where(m: Make):
    mask, x, y = m.mask(*m.shape), m.randn(*m.shape), m.y()
    return lambda: torch.where(mask, x, y)


@case("where, compare", UNARY)
def masked_fill(m: Make):
    x, mask = m.x(), m.mask(*m.shape)
    return lambda: x.masked_fill(mask, 0.5)


def _reductions() -> None:
    for name, dim in {"last": 1, "first": 0, "all": (0, 1)}.items():
        ops = {
            "sum": lambda x, d: x.sum(d),
            "mean": lambda x, d: x.mean(d),
            "max": lambda x, d: x.amax(d),
            "argmax": lambda x, d: x.argmax(None if isinstance(d, tuple) else d),
            "var": lambda x, d: x.var(d),
        }
        for op, function in ops.items():

            def make(m: Make, function=function, dim=dim):
                x = m.x()
                return lambda: function(x, dim)

            family = {"argmax": "argmax", "var": "var"}.get(op, "sum, mean, max")
            case(family, UNARY, f"{op} {name}")(make)


_reductions()
unary("softmax", softmax=lambda x: F.softmax(x, 1), log_softmax=lambda x: F.log_softmax(x, 1))


@case("softmax")
def softmax_backward(m: Make):
    x = m.randn(*m.shape, grad=True)
    return with_gradient(lambda: F.softmax(x, 1), x)


@case("layer_norm", UNARY)
def layer_norm(m: Make):
    x, weight, bias = m.x(), m.randn(m.shape[1]), m.randn(m.shape[1])
    return lambda: F.layer_norm(x, weight.shape, weight, bias)


@case("layer_norm")
def layer_norm_backward(m: Make):
    x, weight, bias = m.randn(*m.shape, grad=True), m.randn(m.shape[1], grad=True), m.randn(m.shape[1], grad=True)
    return with_gradient(lambda: F.layer_norm(x, weight.shape, weight, bias), x, weight, bias)


@case("rms_norm", UNARY)
def rms_norm(m: Make):
    x, weight = m.x(), m.randn(m.shape[1])
    return lambda: F.rms_norm(x, weight.shape, weight)


@case("rms_norm")
def rms_norm_backward(m: Make):
    x, weight = m.randn(*m.shape, grad=True), m.randn(m.shape[1], grad=True)
    return with_gradient(lambda: F.rms_norm(x, weight.shape, weight), x, weight)


def _image_norm(m: Make, grad: bool):
    channels = m.image()[1]
    x, weight, bias = m.randn(*m.image(), grad=grad), m.randn(channels, grad=grad), m.randn(channels, grad=grad)
    # The CPU wants one type for the statistics and the weights.
    mean, variance = weight.detach().new_zeros(channels), weight.detach().new_ones(channels)
    return x, weight, bias, mean, variance


@case("batch_norm")
def batch_norm(m: Make):
    x, weight, bias, mean, var = _image_norm(m, False)
    return lambda: F.batch_norm(x, mean, var, weight, bias, training=True)


@case("batch_norm")
def batch_norm_eval(m: Make):
    x, weight, bias, mean, var = _image_norm(m, False)
    return lambda: F.batch_norm(x, mean, var, weight, bias)


@case("batch_norm")
def batch_norm_backward(m: Make):
    x, weight, bias, mean, var = _image_norm(m, True)
    return with_gradient(lambda: F.batch_norm(x, mean, var, weight, bias, training=True), x, weight, bias)


@case("group_norm")
def group_norm(m: Make):
    x, weight, bias, *_ = _image_norm(m, False)
    return lambda: F.group_norm(x, 4, weight, bias)


@case("group_norm")
def group_norm_backward(m: Make):
    x, weight, bias, *_ = _image_norm(m, True)
    return with_gradient(lambda: F.group_norm(x, 4, weight, bias), x, weight, bias)


@case("losses")
def cross_entropy(m: Make):
    x, target = m.randn(*m.shape, grad=True), m.ints(m.shape[1], m.shape[0])
    return with_gradient(lambda: F.cross_entropy(x, target), x)


@case("losses")
def mse_loss(m: Make):
    x, target = m.randn(*m.shape, grad=True), m.randn(*m.shape)
    return with_gradient(lambda: F.mse_loss(x, target), x)


@case("losses")
def bce_with_logits(m: Make):
    x, target = m.randn(*m.shape, grad=True), m.mask(*m.shape).to(m.dtype)
    return with_gradient(lambda: F.binary_cross_entropy_with_logits(x, target), x)


def _products(family: str, **more) -> None:
    @case(family, UNARY, **more)
    def mm(m: Make):
        n = m.pick(32, 256, 1024)
        a, b = m.randn(n, n), m.randn(n, n).t() if m.layout == "strided" else m.randn(n, n)
        return lambda: torch.mm(a, b)

    @case(family, **more)
    def bmm(m: Make):
        batch, n = m.pick((4, 16), (16, 64), (32, 256))
        a, b = m.randn(batch, n, n), m.randn(batch, n, n)
        return lambda: torch.bmm(a, b)

    @case(family, **more)
    def linear(m: Make):
        rows, n = m.pick((8, 64), (128, 256), (1024, 1024))
        x, weight, bias = m.randn(rows, n), m.randn(n, n), m.randn(n)
        return lambda: F.linear(x, weight, bias)

    @case(family, name="linear, one row", **more)
    def linear_row(m: Make):
        n = m.pick(64, 512, 2048)
        x, weight, bias = m.randn(1, n), m.randn(n, n), m.randn(n)
        return lambda: F.linear(x, weight, bias)


_products("mm, bmm, linear", dtypes=("float32",))
_products("mm, bmm, linear bf16", dtypes=(), always="bfloat16")


def _conv(m: Make, grad: bool):
    batch, channels, height, width = m.pick((1, 8, 16, 16), (4, 32, 32, 32), (8, 64, 56, 56))
    return m.randn(batch, channels, height, width, grad=grad), m.randn(channels, channels, 3, 3, grad=grad)


@case("conv2d")
def conv2d(m: Make):
    x, weight = _conv(m, False)
    return lambda: F.conv2d(x, weight, padding=1)


@case("conv2d", name="conv2d stem 7x7")
def conv2d_stem(m: Make):
    batch, side = m.pick((1, 32), (2, 64), (4, 224))
    x, weight = m.randn(batch, 3, side, side), m.randn(64, 3, 7, 7)
    return lambda: F.conv2d(x, weight, stride=2, padding=3)


@case("conv2d", name="conv2d 1x1")
def conv2d_1x1(m: Make):
    x, _ = _conv(m, False)
    weight = m.randn(2 * x.shape[1], x.shape[1], 1, 1)
    return lambda: F.conv2d(x, weight)


@case("conv2d backward", name="conv2d both gradients")
def conv2d_backward(m: Make):
    x, weight = _conv(m, True)
    return with_gradient(lambda: F.conv2d(x, weight, padding=1), x, weight)


@case("pooling")
def max_pool2d(m: Make):
    x = m.randn(*m.image())
    return lambda: F.max_pool2d(x, 3, 2, 1)


@case("pooling")
def avg_pool2d(m: Make):
    x = m.randn(*m.image())
    return lambda: F.avg_pool2d(x, 2)


@case("pooling")
def adaptive_avg_pool2d(m: Make):
    x = m.randn(*m.image())
    return lambda: F.adaptive_avg_pool2d(x, 1)


@case("pooling")
def max_pool2d_backward(m: Make):
    x = m.randn(*m.image(), grad=True)
    return with_gradient(lambda: F.max_pool2d(x, 3, 2, 1), x)


@case("pooling")
def avg_pool2d_backward(m: Make):
    x = m.randn(*m.image(), grad=True)
    return with_gradient(lambda: F.avg_pool2d(x, 2), x)


def _upsampling() -> None:
    for mode in ("nearest", "bilinear"):

        def forward(m: Make, mode=mode):
            x = m.randn(*m.image())
            return lambda: F.interpolate(x, scale_factor=2, mode=mode)

        def both(m: Make, mode=mode):
            x = m.randn(*m.image(), grad=True)
            return with_gradient(lambda: F.interpolate(x, scale_factor=2, mode=mode), x)

        case("upsampling", name=f"upsample {mode}")(forward)
        case("upsampling", name=f"upsample {mode} backward")(both)


_upsampling()


@case("padding")
def pad(m: Make):
    x = m.randn(*m.image())
    return lambda: F.pad(x, (1, 1, 1, 1))


@case("padding", name="pad reflect")
def pad_reflect(m: Make):
    x = m.randn(*m.image())
    return lambda: F.pad(x, (2, 2, 2, 2), mode="reflect")


def _embedding(m: Make, grad: bool):
    vocabulary, width, tokens = m.pick((100, 32, 32), (1000, 128, 1024), (30000, 512, 8192))
    return m.randn(vocabulary, width, grad=grad), m.ints(vocabulary, tokens)


@case("embedding")
def embedding(m: Make):
    weight, tokens = _embedding(m, False)
    return lambda: F.embedding(tokens, weight)


@case("embedding")
def embedding_backward(m: Make):
    weight, tokens = _embedding(m, True)
    return with_gradient(lambda: F.embedding(tokens, weight), weight)


@case("index", UNARY)
def index_select(m: Make):
    x, rows = m.x(), m.ints(m.shape[0], m.shape[0])
    return lambda: x.index_select(0, rows)


@case("index")
def index_rows(m: Make):
    x, rows = m.x(), m.ints(m.shape[0], m.shape[0])
    return lambda: x[rows]


@case("index", name="index pairs")
def index_pairs(m: Make):
    x, rows, columns = m.x(), m.ints(m.shape[0], *m.shape), m.ints(m.shape[1], *m.shape)
    return lambda: x[rows, columns]


@case("index", UNARY)
def gather(m: Make):
    x, at = m.x(), m.ints(m.shape[1], *m.shape)
    return lambda: x.gather(1, at)


@case("scatter")
def scatter(m: Make):
    x, at, values = m.x(), m.ints(m.shape[1], *m.shape), m.randn(*m.shape)
    return lambda: x.scatter_(1, at, values)


@case("scatter")
def scatter_add(m: Make):
    x, at, values = m.x(), m.ints(m.shape[1], *m.shape), m.randn(*m.shape)
    return lambda: x.scatter_add_(1, at, values)


@case("scatter")
def index_add(m: Make):
    x, rows, values = m.x(), m.ints(m.shape[0], m.shape[0]), m.randn(*m.shape)
    return lambda: x.index_add_(0, rows, values)


@case("scatter")
def index_put(m: Make):
    x, rows, values = m.x(), m.ints(m.shape[0], m.shape[0]), m.randn(*m.shape)
    return lambda: x.index_put_((rows,), values)


@case("scatter", name="index put, accumulate")
def index_put_accumulate(m: Make):
    x, rows, values = m.x(), m.ints(m.shape[0], m.shape[0]), m.randn(*m.shape)
    return lambda: x.index_put_((rows,), values, accumulate=True)


@case("sort, topk")
def sort(m: Make):
    x = m.x(*m.pick((16, 64), (64, 1024), (128, 8192)))
    return lambda: x.sort(1)


@case("sort, topk", name="sort, one row")
def sort_one_row(m: Make):
    x = m.x(m.pick(1024, 65536, 1 << 20))
    return lambda: x.sort()


@case("sort, topk")
def topk(m: Make):
    x = m.x(*m.pick((16, 64), (64, 1024), (128, 32768)))
    return lambda: x.topk(16, 1)


@case("scans", UNARY)
def cumsum(m: Make):
    x = m.x()
    return lambda: x.cumsum(1)


@case("scans", name="cumsum first")
def cumsum_first(m: Make):
    x = m.x()
    return lambda: x.cumsum(0)


@case("scans", name="cumsum, one row")
def cumsum_one_row(m: Make):
    x = m.x(m.shape[0] * m.shape[1])
    return lambda: x.cumsum(0)


@case("cat, copies")
def cat(m: Make):
    x, y = m.x(), m.randn(*m.shape)
    return lambda: torch.cat((x, y), 1)


@case("cat, copies")
def stack(m: Make):
    x, y = m.x(), m.randn(*m.shape)
    return lambda: torch.stack((x, y), 1)


@case("cat, copies")
def transposed_copy(m: Make):
    x = m.x()
    return lambda: x.t().contiguous()


@case("cat, copies")
def permuted_copy(m: Make):
    x = m.randn(*m.image())
    return lambda: x.permute(0, 2, 3, 1).contiguous()


@case("cat, copies")
def heads_copy(m: Make):
    x = m.randn(*m.pick((2, 8, 4, 16), (4, 64, 8, 64), (16, 256, 16, 64)))
    return lambda: x.transpose(1, 2).contiguous()


@case("random")
def normal(m: Make):
    x = m.out()
    return lambda: x.normal_()


@case("random")
def uniform(m: Make):
    x = m.out()
    return lambda: x.uniform_()


@case("random")
def dropout(m: Make):
    x = m.x()
    return lambda: F.dropout(x, 0.1)


def _attention(m: Make, grad: bool):
    shape = m.pick((1, 2, 16, 16), (2, 4, 128, 64), (4, 8, 512, 64))
    return [m.randn(*shape, grad=grad) for _ in range(3)]


@case("sdpa")
def sdpa(m: Make):
    q, k, v = _attention(m, False)
    return lambda: F.scaled_dot_product_attention(q, k, v)


@case("sdpa")
def sdpa_causal(m: Make):
    q, k, v = _attention(m, False)
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)


@case("sdpa")
def sdpa_backward(m: Make):
    q, k, v = _attention(m, True)
    return with_gradient(lambda: F.scaled_dot_product_attention(q, k, v), q, k, v)


def _parameters(m: Make) -> list[torch.Tensor]:
    made = [m.randn(*m.shape, grad=True) for _ in range(m.pick(8, 8, 2))]
    for p in made:
        p.grad = m.randn(*m.shape)
    return made


def _optimizers() -> None:
    kinds = {
        "adamw": lambda p: torch.optim.AdamW(p),
        "adamw fused": lambda p: torch.optim.AdamW(p, fused=True),
        "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    }
    for name, kind in kinds.items():

        def make(m: Make, kind=kind):
            step = kind(_parameters(m)).step
            return lambda: step()

        case("optimizers", name=name)(make)

    @case("optimizers", name="foreach add")
    def foreach_add(m: Make):
        xs, ys = _parameters(m), _parameters(m)
        return lambda: torch._foreach_add(xs, ys, alpha=0.5)


_optimizers()
