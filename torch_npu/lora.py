"""Fewer commands for LoRA layers of peft, whose code stays as it is.

    model = peft.get_peft_model(model, config)
    torch_npu.optimize_lora(model)

A layer computes base(x) + scaling * B(A(x)). peft calls five to seven ops for it; then a layer calls npu_lora_linear,
which is three commands forward and five backward. Weights, state_dict, merging and saving are peft's own.
"""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import nn


def _forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    adapter = _only_adapter(self) if not args and not kwargs else None
    if adapter is None:
        return type(self).forward(self, x, *args, **kwargs)
    base, a, b = self.base_layer, self.lora_A[adapter], self.lora_B[adapter]
    dropout = self.lora_dropout[adapter]
    adapted = None if isinstance(dropout, nn.Identity) or not dropout.training or dropout.p == 0 else dropout(x)
    return torch.ops.npu.npu_lora_linear(x, base.weight, base.bias, a.weight, b.weight, self.scaling[adapter], adapted)[
        0
    ]


def _only_adapter(layer: Any) -> str | None:
    """The active adapter, if the layer does what npu_lora_linear does and nothing else."""
    if layer.disable_adapters or layer.merged or type(layer.base_layer) is not nn.Linear:
        return None
    active = [name for name in layer.active_adapters if name in layer.lora_A]
    if len(active) != 1 or active[0] in layer.lora_variant:
        return None
    parts = layer.lora_A[active[0]], layer.lora_B[active[0]]
    if any(type(part) is not nn.Linear or part.bias is not None for part in parts):
        return None
    watched = (layer.base_layer, *parts)
    return None if any(part._forward_hooks or part._forward_pre_hooks for part in watched) else active[0]


def optimize_lora(model: nn.Module, enable: bool = True) -> int:
    """Makes the LoRA linear layers of a peft model call npu_lora_linear, or peft's code again; returns how many."""
    from peft.tuners.lora.layer import Linear

    layers: list[Any] = [layer for layer in model.modules() if type(layer) is Linear]
    if enable and not layers:
        raise ValueError(
            f"optimize_lora: expected a peft model with LoRA linear layers, got none in {type(model).__name__}"
        )
    for layer in layers:
        if enable:
            layer.forward = types.MethodType(_forward, layer)
        else:
            layer.__dict__.pop("forward", None)
    return len(layers)
