"""The cases of `python -m torch_npu bench ops`: each makes its operands, and is a call of an op with them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

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
    operands: Callable[[Make], Iterable[Any]]
    op: Callable
    layouts: tuple[str, ...] = CONTIGUOUS
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    always: str | None = None  # a type in which the case is measured whatever was asked for

    def make(self, m: Make) -> Callable:
        """The call; of operands that want a gradient, with the call of the gradient."""
        operands = list(self.operands(m))
        call = partial(self.op, *operands)
        inputs = [x for x in operands if isinstance(x, torch.Tensor) and x.requires_grad]
        if not inputs:
            return call
        gradient = torch.ones_like(call().detach())

        def both():
            with torch.enable_grad():
                return torch.autograd.grad(call(), inputs, gradient)

        return both


# Operands.


def one(m: Make) -> list:
    return [m.x()]


def two(m: Make) -> list:
    return [m.randn(*m.shape), m.y()]


def learned(m: Make) -> list:
    return [m.randn(*m.shape, grad=True)]


def image(m: Make) -> list:
    return [m.randn(*m.image())]


def learned_image(m: Make) -> list:
    return [m.randn(*m.image(), grad=True)]


def norm(count: int, grad: bool = False) -> Callable[[Make], list]:
    """A matrix, and `count` vectors that scale and shift its columns."""

    def make(m: Make) -> list:
        x = m.randn(*m.shape, grad=True) if grad else m.x()
        return [x, *(m.randn(m.shape[1], grad=grad) for _ in range(count))]

    return make


def image_norm(m: Make, grad: bool = False) -> list:
    channels = m.image()[1]
    x, weight, bias = m.randn(*m.image(), grad=grad), m.randn(channels, grad=grad), m.randn(channels, grad=grad)
    # The CPU wants one type for the statistics and the weights.
    return [x, weight, bias, weight.detach().new_zeros(channels), weight.detach().new_ones(channels)]


def square(m: Make) -> list:
    n = m.pick(32, 256, 1024)
    return [m.randn(n, n), m.randn(n, n).t() if m.layout == "strided" else m.randn(n, n)]


def squares(m: Make) -> list:
    batch, n = m.pick((4, 16), (16, 64), (32, 256))
    return [m.randn(batch, n, n), m.randn(batch, n, n)]


def layer(m: Make) -> list:
    rows, n = m.pick((8, 64), (128, 256), (1024, 1024))
    return [m.randn(rows, n), m.randn(n, n), m.randn(n)]


def layer_row(m: Make) -> list:
    n = m.pick(64, 512, 2048)
    return [m.randn(1, n), m.randn(n, n), m.randn(n)]


def conv(m: Make, grad: bool = False) -> list:
    batch, channels, height, width = m.pick((1, 8, 16, 16), (4, 32, 32, 32), (8, 64, 56, 56))
    return [m.randn(batch, channels, height, width, grad=grad), m.randn(channels, channels, 3, 3, grad=grad)]


def conv_stem(m: Make) -> list:
    batch, side = m.pick((1, 32), (2, 64), (4, 224))
    return [m.randn(batch, 3, side, side), m.randn(64, 3, 7, 7)]


def conv_1x1(m: Make) -> list:
    x, _ = conv(m)
    return [x, m.randn(2 * x.shape[1], x.shape[1], 1, 1)]


def table(m: Make, grad: bool = False) -> list:
    vocabulary, width, tokens = m.pick((100, 32, 32), (1000, 128, 1024), (30000, 512, 8192))
    weight = m.randn(vocabulary, width, grad=grad)
    return [m.ints(vocabulary, tokens), weight]


def rows(m: Make) -> list:
    return [m.x(), m.ints(m.shape[0], m.shape[0])]


def places(m: Make) -> list:
    return [m.x(), m.ints(m.shape[1], *m.shape)]


def pairs(m: Make) -> list:
    return [m.x(), m.ints(m.shape[0], *m.shape), m.ints(m.shape[1], *m.shape)]


def new_rows(m: Make) -> list:
    return [*rows(m), m.randn(*m.shape)]


def new_places(m: Make) -> list:
    return [*places(m), m.randn(*m.shape)]


def matrix(small, medium, large) -> Callable[[Make], list]:
    return lambda m: [m.x(*m.pick(small, medium, large))]


def heads(m: Make, grad: bool = False) -> list:
    shape = m.pick((1, 2, 16, 16), (2, 4, 128, 64), (4, 8, 512, 64))
    return [m.randn(*shape, grad=grad) for _ in range(3)]


def parameters(m: Make) -> list[torch.Tensor]:
    made = [m.randn(*m.shape, grad=True) for _ in range(m.pick(8, 8, 2))]
    for p in made:
        p.grad = m.randn(*m.shape)
    return made


def grad(operands: Callable[..., list]) -> Callable[[Make], list]:
    return partial(operands, grad=True)


def with_other_type(m: Make) -> list:
    return [m.x(), torch.bfloat16 if m.dtype == torch.float32 else torch.float32]


# Ops.


def to_other_type(x: torch.Tensor, target: torch.dtype) -> torch.Tensor:
    return x.to(target, memory_format=torch.contiguous_format)


def layer_norm(x, weight, bias):
    return F.layer_norm(x, weight.shape, weight, bias)


def rms_norm(x, weight):
    return F.rms_norm(x, weight.shape, weight)


def batch_norm(x, weight, bias, mean, var, training: bool = True):
    return F.batch_norm(x, mean, var, weight, bias, training=training)


def group_norm(x, weight, bias, *_):
    return F.group_norm(x, 4, weight, bias)


def over(op: Any, dim: Any) -> Callable:
    return lambda x: op(x, dim)


def folds(dim, where: str) -> dict[str, tuple]:
    """Of rows, of columns, of everything."""
    ops = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax}
    return {f"{name} {where}": (one, over(op, dim), UNARY) for name, op in ops.items()}


def step(optimizer: type[torch.optim.Optimizer], **options) -> tuple:
    return lambda m: [optimizer(parameters(m), **options).step], lambda step: step()


PRODUCTS = {
    "mm": (square, torch.mm, UNARY),
    "bmm": (squares, torch.bmm),
    "linear": (layer, F.linear),
    "linear, one row": (layer_row, F.linear),
}
# Family to name to operands, op, and layouts if there are several.
FAMILIES: dict[str, dict[str, tuple]] = {
    "pointwise": {
        "add": (two, torch.add, BINARY),
        "mul": (two, torch.mul, BINARY),
        "relu": (one, torch.relu, UNARY),
        "clone": (one, lambda x: x.clone(memory_format=torch.contiguous_format), UNARY),
        "cast": (with_other_type, to_other_type, UNARY),
        "add in place": (lambda m: [m.x(), m.y()], lambda x, y: x.add_(y, alpha=0.5), BINARY),
    },
    "functions": {
        "exp": (one, torch.exp, UNARY),
        "tanh": (one, torch.tanh, UNARY),
        "erf": (one, torch.erf, UNARY),
        "sigmoid": (one, torch.sigmoid, UNARY),
        "silu": (one, F.silu, UNARY),
    },
    "gelu": {
        "gelu": (one, F.gelu, UNARY),
        "gelu tanh": (one, lambda x: F.gelu(x, approximate="tanh"), UNARY),
        "gelu backward": (learned, F.gelu),
    },
    "where, compare": {
        "gt": (two, torch.gt, BINARY),
        "eq": (two, torch.eq, BINARY),
        "maximum": (two, torch.maximum, BINARY),
        "where": (lambda m: [m.mask(*m.shape), *two(m)], torch.where, BINARY),
        "masked fill": (lambda m: [m.x(), m.mask(*m.shape)], lambda x, mask: x.masked_fill(mask, 0.5), UNARY),
    },
    "sum, mean, max": folds(1, "last") | folds(0, "first") | folds((0, 1), "all"),
    "argmax": {
        "argmax last": (one, over(torch.argmax, 1), UNARY),
        "argmax first": (one, over(torch.argmax, 0), UNARY),
        "argmax all": (one, torch.argmax, UNARY),
    },
    "var": {
        "var last": (one, over(torch.var, 1), UNARY),
        "var first": (one, over(torch.var, 0), UNARY),
        "var all": (one, over(torch.var, (0, 1)), UNARY),
    },
    "softmax": {
        "softmax": (one, over(F.softmax, 1), UNARY),
        "log softmax": (one, over(F.log_softmax, 1), UNARY),
        "softmax backward": (learned, over(F.softmax, 1)),
    },
    "layer_norm": {
        "layer norm": (norm(2), layer_norm, UNARY),
        "layer norm backward": (norm(2, grad=True), layer_norm),
    },
    "rms_norm": {
        "rms norm": (norm(1), rms_norm, UNARY),
        "rms norm backward": (norm(1, grad=True), rms_norm),
    },
    "batch_norm": {
        "batch norm": (image_norm, batch_norm),
        "batch norm eval": (image_norm, partial(batch_norm, training=False)),
        "batch norm backward": (grad(image_norm), batch_norm),
    },
    "group_norm": {
        "group norm": (image_norm, group_norm),
        "group norm backward": (grad(image_norm), group_norm),
    },
    "losses": {
        "cross entropy": (lambda m: [*learned(m), m.ints(m.shape[1], m.shape[0])], F.cross_entropy),
        "mse loss": (lambda m: [*learned(m), m.randn(*m.shape)], F.mse_loss),
        "bce with logits": (
            lambda m: [*learned(m), m.mask(*m.shape).to(m.dtype)],
            F.binary_cross_entropy_with_logits,
        ),
    },
    "mm, bmm, linear": PRODUCTS,
    "mm, bmm, linear bf16": PRODUCTS,
    "conv2d": {
        "conv2d": (conv, lambda x, weight: F.conv2d(x, weight, padding=1)),
        "conv2d stem 7x7": (conv_stem, lambda x, weight: F.conv2d(x, weight, stride=2, padding=3)),
        "conv2d 1x1": (conv_1x1, F.conv2d),
    },
    "conv2d backward": {
        "conv2d both gradients": (grad(conv), lambda x, weight: F.conv2d(x, weight, padding=1)),
    },
    "pooling": {
        "max pool2d": (image, lambda x: F.max_pool2d(x, 3, 2, 1)),
        "avg pool2d": (image, lambda x: F.avg_pool2d(x, 2)),
        "adaptive avg pool2d": (image, lambda x: F.adaptive_avg_pool2d(x, 1)),
        "max pool2d backward": (learned_image, lambda x: F.max_pool2d(x, 3, 2, 1)),
        "avg pool2d backward": (learned_image, lambda x: F.avg_pool2d(x, 2)),
    },
    "upsampling": {
        f"upsample {mode}{suffix}": (operands, partial(F.interpolate, scale_factor=2, mode=mode))
        for mode in ("nearest", "bilinear")
        for suffix, operands in (("", image), (" backward", learned_image))
    },
    "padding": {
        "pad": (image, lambda x: F.pad(x, (1, 1, 1, 1))),
        "pad reflect": (image, lambda x: F.pad(x, (2, 2, 2, 2), mode="reflect")),
    },
    "embedding": {
        "embedding": (table, F.embedding),
        "embedding backward": (grad(table), F.embedding),
    },
    "index": {
        "index select": (rows, lambda x, rows: x.index_select(0, rows), UNARY),
        "index rows": (rows, lambda x, rows: x[rows]),
        "index pairs": (pairs, lambda x, rows, columns: x[rows, columns]),
        "gather": (places, lambda x, at: x.gather(1, at), UNARY),
    },
    "scatter": {
        "scatter": (new_places, lambda x, at, values: x.scatter_(1, at, values)),
        "scatter add": (new_places, lambda x, at, values: x.scatter_add_(1, at, values)),
        "index add": (new_rows, lambda x, rows, values: x.index_add_(0, rows, values)),
        "index put": (new_rows, lambda x, rows, values: x.index_put_((rows,), values)),
        "index put, accumulate": (
            new_rows,
            lambda x, rows, values: x.index_put_((rows,), values, accumulate=True),
        ),
    },
    "sort, topk": {
        "sort": (matrix((16, 64), (64, 1024), (128, 8192)), lambda x: x.sort(1)),
        "sort, one row": (matrix((1024,), (65536,), (1 << 20,)), torch.sort),
        "topk": (matrix((16, 64), (64, 1024), (128, 32768)), lambda x: x.topk(16, 1)),
    },
    "scans": {
        "cumsum": (one, over(torch.cumsum, 1), UNARY),
        "cumsum first": (one, over(torch.cumsum, 0)),
        "cumsum, one row": (lambda m: [m.x(m.shape[0] * m.shape[1])], over(torch.cumsum, 0)),
    },
    "cat, copies": {
        "cat": (lambda m: [m.x(), m.randn(*m.shape)], lambda x, y: torch.cat((x, y), 1)),
        "stack": (lambda m: [m.x(), m.randn(*m.shape)], lambda x, y: torch.stack((x, y), 1)),
        "transposed copy": (one, lambda x: x.t().contiguous()),
        "permuted copy": (image, lambda x: x.permute(0, 2, 3, 1).contiguous()),
        "heads copy": (
            lambda m: [m.randn(*m.pick((2, 8, 4, 16), (4, 64, 8, 64), (16, 256, 16, 64)))],
            lambda x: x.transpose(1, 2).contiguous(),
        ),
    },
    "random": {
        "normal": (lambda m: [m.out()], lambda x: x.normal_()),
        "uniform": (lambda m: [m.out()], lambda x: x.uniform_()),
        "dropout": (one, lambda x: F.dropout(x, 0.1)),
    },
    "sdpa": {
        "sdpa": (heads, F.scaled_dot_product_attention),
        "sdpa causal": (heads, partial(F.scaled_dot_product_attention, is_causal=True)),
        "sdpa backward": (grad(heads), F.scaled_dot_product_attention),
    },
    "optimizers": {
        "adamw": step(torch.optim.AdamW),
        "adamw fused": step(torch.optim.AdamW, fused=True),
        "sgd": step(torch.optim.SGD, lr=0.01, momentum=0.9),
        "foreach add": (
            lambda m: [parameters(m), parameters(m)],
            lambda xs, ys: torch._foreach_add(xs, ys, alpha=0.5),
        ),
    },
}
# Products of bfloat16 are a family of their own, measured whatever was asked for.
TYPES: dict[str, dict] = {
    "mm, bmm, linear": {"dtypes": ("float32",)},
    "mm, bmm, linear bf16": {"dtypes": (), "always": "bfloat16"},
}
CASES = [
    Case(family, name, *case, **TYPES.get(family, {}))
    for family, cases in FAMILIES.items()
    for name, case in cases.items()
]
