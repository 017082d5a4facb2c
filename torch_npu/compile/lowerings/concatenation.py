"""cat, whose parts are stored one by one where that is the better way."""

import torch
from torch._inductor import ir
from torch._inductor.virtualized import V

from torch_npu.compile.codegen.space import numel
from torch_npu.compile.lowerings import table

aten = torch.ops.aten
RUN = 64  # neighbours in memory: copying them costs less than asking at each point of a cat which part it is in


def _has_runs(inputs, dim: int) -> bool:
    """Whether each part is pieces of many neighbours in the result."""
    sizes = [x.get_size() for x in inputs]
    return all(V.graph.sizevars.statically_known_geq(numel(s[dim:]), RUN) for s in sizes) and dim < len(sizes[0]) - 1


@table.lower(aten.cat.default)
def concatenate(lowered, inputs, dim=0):
    """Of computed parts of equal size: one loop over the points of a part stores all of them. Inductor would compute
    every part at every point of the result, and take what it needs. Parts of other sizes are stored one by one where
    that is fast."""
    dim = dim if dim >= 0 else dim + len(inputs[0].get_size())
    parts = [x.data.data if isinstance(x.data, ir.StorageBox) else None for x in inputs]
    sizes = [x.get_size() for x in inputs]
    computed = all(isinstance(p, ir.Pointwise) and p.inner_fn_opcount().num_ops > 2 for p in parts)
    same_types = len({x.get_dtype() for x in inputs}) == 1
    alike = same_types and all(s == sizes[0] for s in sizes)
    apart = (computed and alike) or (same_types and _has_runs(inputs, dim))
    if not (apart and 1 < len(inputs) <= 4):
        return lowered(inputs, dim)
    return ir.TensorBox(ir.ConcatKernel.create(inputs, dim))
