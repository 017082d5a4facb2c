"""What the backward pass computes again, and what the forward pass keeps for it.

PyTorch's partitioner takes arithmetic for free, which it is beside the memory of a GPU, and computes functions again
even where the backward pass then stores their results. Here a function costs more than to write and read its result.
Arithmetic is nearly free here too: a norm's gradient takes its input, which the forward pass has stored anyway, and not
the normalised values, which it would have to store as well."""

import dataclasses
import functools

import torch
from torch._functorch import config, partitioners
from torch._inductor import compile_fx
from torch.utils._ordered_set import OrderedSet

# Functions whose derivatives are made of their results, so that eager mode keeps these, too; and those of angles, which
# are small beside what is computed with them.
KEPT = tuple(
    getattr(torch.ops.aten, name)
    for name in "cos cosh exp exp2 expm1 log log10 log1p log2 pow sigmoid sin sinh tan tanh".split()
)
# A reduction that walks its rows twice: what it reduces is in memory, and no part of a loop that ends there.
NOT_FUSED = (torch.ops.aten.var_mean,)
# What these reduce is in memory behind them, since what a norm makes of it reads it once more. Computed again, it would
# cost all that it is made of: the activations of one layer in front of the other.
NORMS = (torch.ops.aten.mean, torch.ops.aten.var, torch.ops.aten.var_mean)
# Whether what several loops far from each other use is never computed again. The sums of residuals are used so, and
# what a norm makes of them would have to be stored beside them.
SETTINGS = {"ban_recompute_used_far_apart": False}


class Types(partitioners.OpTypes):
    def is_recomputable(self, node) -> bool:
        return super().is_recomputable(node) and not any(
            partitioners.get_aten_target(user) in NORMS for user in node.users
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
            ours = dataclasses.replace(
                types,
                recomputable_ops=types.recomputable_ops - OrderedSet(KEPT),
                fusible_ops=types.fusible_ops - OrderedSet(NOT_FUSED),
            )
            return Types(**vars(ours))

        partitioners.get_default_op_list = keeping
        try:
            with config.patch(SETTINGS):
                return wrapped(graph, *args, **kwargs)
        finally:
            partitioners.get_default_op_list = default

    compile_fx.min_cut_rematerialization_partition = partition
