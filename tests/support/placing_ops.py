"""Ops that sort, or store where an index says: name to a function of four tensors on any device. What it returns, or
the gradients that it asks for, are tensors or nested tuples of them."""

import torch
import torch.nn.functional as F


def inputs() -> list[torch.Tensor]:
    """Rows, images, an index of columns, and a few small numbers."""
    torch.manual_seed(0)
    rows, images = torch.randn(6, 50), torch.randn(2, 3, 8, 8)
    return [rows, images, torch.randint(0, 50, (6, 30)), torch.randint(0, 6, (40,))]


def gradient(function, x: torch.Tensor) -> torch.Tensor:
    """Weights differ from result to result, so that a gradient in the wrong place shows."""
    x = x.clone().requires_grad_()
    out = function(x)
    weights = torch.arange(out.numel(), device=x.device).reshape(out.shape) % 7
    (out * weights).sum().backward()
    return x.grad


def grid(like: torch.Tensor) -> torch.Tensor:
    return torch.linspace(-1, 1, 64, device=like.device).reshape(2, 4, 4, 2)


OPS = {
    "sort": lambda x, i, at, n: torch.sort(x, stable=True, descending=True),
    "topk": lambda x, i, at, n: torch.topk(x, 7),
    "unique": lambda x, i, at, n: torch.unique(n, return_inverse=True, return_counts=True),
    "nonzero": lambda x, i, at, n: torch.nonzero(x > 0),
    "masked_select": lambda x, i, at, n: torch.masked_select(x, x > 0),
    "masked_scatter": lambda x, i, at, n: x.masked_scatter(x > 0, x.flip(0)),
    "bincount": lambda x, i, at, n: torch.bincount(n),
    "histc": lambda x, i, at, n: torch.histc(x, 10),
    "repeat_interleave": lambda x, i, at, n: torch.repeat_interleave(n),
    "index_put": lambda x, i, at, n: x.index_put((n, n), x[0, :40], accumulate=True),
    "index_fill": lambda x, i, at, n: x.index_fill(1, n, 3.0),
    "index_add": lambda x, i, at, n: x.index_add(1, n, x[:, 10:]),
    "scatter": lambda x, i, at, n: x.scatter(1, at[:, :1], 3.0),
    "scatter_add": lambda x, i, at, n: x.scatter_add(1, at, x[:, :30]),
    "scatter_reduce": lambda x, i, at, n: x.scatter_reduce(1, at, x[:, :30], "amax"),
    "gather": lambda x, i, at, n: gradient(lambda y: torch.gather(y, 1, at), x),
    "take": lambda x, i, at, n: gradient(lambda y: torch.take(y, at), x),
    "median": lambda x, i, at, n: gradient(lambda y: y.median(1).values, x),
    "embedding": lambda x, i, at, n: gradient(lambda y: F.embedding(n, y), x),
    "embedding_bag": lambda x, i, at, n: gradient(lambda y: F.embedding_bag(n.view(8, 5), y, mode="max"), x),
    "nll_loss": lambda x, i, at, n: gradient(lambda y: F.nll_loss(y, n[:6], reduction="none"), x),
    "max_pool": lambda x, i, at, n: gradient(lambda y: F.max_pool2d(y, 3, 2), i),
    "grid_sample": lambda x, i, at, n: gradient(lambda y: F.grid_sample(y, grid(y), align_corners=False), i),
    "upsample": lambda x, i, at, n: gradient(lambda y: F.interpolate(y, scale_factor=2, mode="bilinear"), i),
    "pad": lambda x, i, at, n: gradient(lambda y: F.pad(y, (1, 2, 2, 1), mode="reflect"), i),
    "unfold": lambda x, i, at, n: gradient(lambda y: F.unfold(y, 3), i),
}
