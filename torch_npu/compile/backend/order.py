"""In which order kernels run: what only the caller wants comes right behind what it reads, while that is in a cache.

Inductor tries three orders and takes the one whose peak of memory is the lowest. The gradients of weights and biases,
which nobody in the graph reads, then often come last, when what they are computed from has left the caches."""

import functools

from torch._inductor import memory
from torch._inductor.scheduler import OutputNode


def _is_result(node) -> bool:
    """Whether nothing else in the graph waits for this node."""
    return all(isinstance(user.node, OutputNode) for buffer in node.get_outputs() for user in buffer.users)


def near(nodes, name_to_buf, name_to_fused_node) -> list:
    """`nodes` in their order, but results that are products as early as can be, and before them those that read nothing
    but what was just written (the gradient of a bias). What the next kernels read is written last."""
    place = {node: k for k, node in enumerate(nodes)}
    keys = {}
    for node, k in place.items():
        keys[node] = (k, 0, 0)
        names = {d.name for d in node.read_writes.reads} | {d.name for d in node.unmet_dependencies}
        made = {n for n in names if n in name_to_buf}
        if _is_result(node) and (node.is_template() or not made or made == names):
            before = [place.get(name_to_fused_node.get(name_to_buf[n].defining_op_name()), k) for n in made]
            keys[node] = (max(before, default=-1), 1 + node.is_template(), k)
    return sorted(nodes, key=keys.__getitem__)


def install() -> None:
    reorder = memory.reorder_for_peak_memory

    @functools.wraps(reorder)
    def order(nodes, name_to_buf, name_to_fused_node, *rest, **options):
        if not any(n.get_device() is not None and n.get_device().type == "npu" for n in nodes):
            return reorder(nodes, name_to_buf, name_to_fused_node, *rest, **options)
        return near(nodes, name_to_buf, name_to_fused_node)

    memory.reorder_for_peak_memory = order
