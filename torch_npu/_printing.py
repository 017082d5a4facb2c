"""Printing a tensor runs a dozen small ops on it: on the CPU they cost nothing and count as nobody's fallback.

A tensor that is printed in part stays where it is: only the edges come to the host."""

import functools

import torch
import torch._tensor_str as tensor_str

from torch_npu import torch_seams


def threshold() -> float:
    return tensor_str.PRINT_OPTS.threshold


def _on_host(original):
    @functools.wraps(original)
    def _tensor_str(self, indent):
        if self.device.type == "npu" and (self.layout != torch.strided or self.numel() <= threshold()):
            self = self.cpu()
        return original(self, indent)

    return _tensor_str


def _edges_on_host(summarized):
    @functools.wraps(summarized)
    def get_summarized_data(self):
        edges = summarized(self)
        return edges.cpu() if edges.device.type == "npu" else edges

    return get_summarized_data


def register() -> None:
    until = "a backend can say that its tensors are printed from the host, as torch does for its own"
    why = "printing runs a dozen small ops on the device, or counts as many fallbacks"
    torch_seams.replace("torch._tensor_str", "_tensor_str", _on_host, why=why, until=until)
    why = "of a tensor that is printed in part, only the edges are copied"
    torch_seams.replace("torch._tensor_str", "get_summarized_data", _edges_on_host, why=why, until=until)
