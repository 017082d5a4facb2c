"""What the backward pass computes again, and what the forward pass keeps for it.

PyTorch's partitioner takes arithmetic for free, which it is beside the memory of a GPU, and computes functions again
even where the backward pass then stores their results. Here a function costs more than to write and read its result."""

import dataclasses
import functools

import torch
from torch._functorch import partitioners
from torch._inductor import compile_fx
from torch.utils._ordered_set import OrderedSet

# Functions whose derivatives are made of their results, so that eager mode keeps these, too; and those of angles, which
# are small beside what is computed with them.
KEPT = tuple(
    getattr(torch.ops.aten, name)
    for name in "cos cosh exp exp2 expm1 log log10 log1p log2 pow sigmoid sin sinh tan tanh".split()
)


def install(on_npu) -> None:
    """`on_npu`: does a graph compute on the device? Nothing changes for others."""
    wrapped = compile_fx.min_cut_rematerialization_partition

    @functools.wraps(wrapped)
    def partition(graph, *args, **kwargs):
        if not on_npu(graph):
            return wrapped(graph, *args, **kwargs)
        default = partitioners.get_default_op_list

        def keeping():
            types = default()
            return dataclasses.replace(types, recomputable_ops=types.recomputable_ops - OrderedSet(KEPT))

        partitioners.get_default_op_list = keeping
        try:
            return wrapped(graph, *args, **kwargs)
        finally:
            partitioners.get_default_op_list = default

    compile_fx.min_cut_rematerialization_partition = partition
