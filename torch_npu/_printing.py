"""Printing a tensor runs a dozen small ops on it: on the CPU they cost nothing and count as nobody's fallback.

A tensor that is printed in part stays where it is: only the edges come to the host."""

import torch
import torch._tensor_str as tensor_str

from torch_npu import torch_seams


def threshold() -> float:
    return tensor_str.PRINT_OPTS.threshold


UNTIL = "a backend can say that its tensors are printed from the host, as torch does for its own"


@torch_seams.replace(
    "torch._tensor_str", "_tensor_str", why="printing is a dozen small ops, or as many fallbacks", until=UNTIL
)
def tensor_str_on_host(original, self, indent):
    if self.device.type == "npu" and (self.layout != torch.strided or self.numel() <= threshold()):
        self = self.cpu()
    return original(self, indent)


@torch_seams.replace(
    "torch._tensor_str", "get_summarized_data", why="of a tensor printed in part only edges are copied", until=UNTIL
)
def edges_on_host(original, self):
    edges = original(self)
    return edges.cpu() if edges.device.type == "npu" else edges
