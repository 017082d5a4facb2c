"""Random ops of PyTorch's database set a fixed seed around themselves: this lets the caller's through."""

from contextlib import AbstractContextManager

from torch_npu import torch_seams

_SEAM = torch_seams.hold(
    "torch.testing._internal.common_methods_invocations",
    "wrapper_set_seed",
    why="random ops of the database are compared under several seeds, and it sets the same one each time",
    until="an OpInfo takes a seed",
)


def seeds_from_outside() -> AbstractContextManager[None]:
    return _SEAM.held(lambda op, *args, **kwargs: op(*args, **kwargs))
