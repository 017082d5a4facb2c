"""cat, whose parts are stored one by one where that is the better way."""

import torch
from torch._inductor import ir, lowering
from torch._inductor.virtualized import V

from torch_npu.compile.codegen.space import numel
from torch_npu.compile.lowerings import left_to_aten

aten = torch.ops.aten
RUN = 64  # neighbours in memory: copying them costs less than asking at each point of a cat which part it is in


def _has_runs(inputs, dim: int) -> bool:
    """Whether each part is pieces of many neighbours in the result."""
    sizes = [x.get_size() for x in inputs]
    return all(V.graph.sizevars.statically_known_geq(numel(s[dim:]), RUN) for s in sizes) and dim < len(sizes[0]) - 1


def _apart(cat):
    """A cat of computed parts of equal size: one loop over the points of a part stores all of them. Inductor would
    compute every part at every point of the result, and take what it needs. Parts of other sizes are stored one by one
    where that is fast."""

    def concatenate(inputs, dim=0):
        dim = dim if dim >= 0 else dim + len(inputs[0].get_size())
        parts = [x.data.data if isinstance(x.data, ir.StorageBox) else None for x in inputs]
        sizes = [x.get_size() for x in inputs]
        computed = all(isinstance(p, ir.Pointwise) and p.inner_fn_opcount().num_ops > 2 for p in parts)
        same_types = len({x.get_dtype() for x in inputs}) == 1
        alike = same_types and all(s == sizes[0] for s in sizes)
        apart = (computed and alike) or (same_types and _has_runs(inputs, dim))
        if not (apart and 1 < len(inputs) <= 4):
            return cat(inputs, dim)
        return ir.TensorBox(ir.ConcatKernel.create(inputs, dim))

    return concatenate


def register() -> None:
    left_to_aten.replace_lowering(aten.cat.default, _apart(lowering.lowerings[aten.cat.default]))
