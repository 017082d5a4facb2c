"""Printing a tensor runs a dozen small ops on it: on the CPU they cost nothing and count as nobody's fallback.

A tensor that is printed in part stays where it is: only the edges come to the host."""

import functools

import torch
import torch._tensor_str as tensor_str


def threshold() -> int:
    return tensor_str.PRINT_OPTS.threshold


def patch() -> None:
    original = tensor_str._tensor_str
    if getattr(original, "_of_torch_npu", False):
        return

    @functools.wraps(original)
    def _tensor_str(self, indent):
        if self.device.type == "npu" and (self.layout != torch.strided or self.numel() <= threshold()):
            self = self.cpu()
        return original(self, indent)

    summarized = tensor_str.get_summarized_data

    @functools.wraps(summarized)
    def get_summarized_data(self):
        edges = summarized(self)
        return edges.cpu() if edges.device.type == "npu" else edges

    _tensor_str._of_torch_npu = True
    tensor_str.get_summarized_data = get_summarized_data
    tensor_str._tensor_str = _tensor_str
