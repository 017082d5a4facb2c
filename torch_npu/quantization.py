"""Linear layers with int8 weights.

    torch_npu.quantization.quantize_(model, "weight_only")   weights int8, activations as they are
    torch_npu.quantization.quantize_(model, "dynamic")       activations too, token by token, and an int8 product

A weight has one scale per row (output feature). The layers save and load through state_dict: quantise a fresh model the
same way, then load. Gradients reach the input (and a bias), so adapters train on top; weights do not.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

MODES = ("weight_only", "dynamic")


class Int8Linear(nn.Module):
    """nn.Linear with `weight` in int8 and `scale` of each of its rows; made by from_linear or quantize_."""

    weight: torch.Tensor
    scale: torch.Tensor

    def __init__(self, in_features: int, out_features: int, bias: bool = True, mode: str = "weight_only", **factory):
        super().__init__()
        if mode not in MODES:
            raise ValueError(f"Int8Linear: expected mode in {MODES}, got {mode!r}")
        self.in_features, self.out_features, self.mode = in_features, out_features, mode
        device = factory.get("device")
        self.register_buffer("weight", torch.zeros(out_features, in_features, dtype=torch.int8, device=device))
        self.register_buffer("scale", torch.zeros(out_features, device=device))
        self.register_parameter("bias", nn.Parameter(torch.zeros(out_features, **factory)) if bias else None)

    @classmethod
    @torch.no_grad()
    def from_linear(cls, linear: nn.Linear, mode: str = "weight_only") -> Int8Linear:
        """The layer with its weights as int8 and a scale per output."""
        layer = cls(linear.in_features, linear.out_features, bias=False, mode=mode, device=linear.weight.device)
        layer.weight, layer.scale = torch.ops.npu.npu_dynamic_quant(linear.weight)
        layer.bias = linear.bias
        return layer.train(linear.training)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Int8Linear:
        """half(), bfloat16() and to(dtype) are for activations and the bias: the scales stay float32, since rounding
        them would change every weight. Moves to another device are for all."""
        scale = self.scale
        super()._apply(fn, recurse)
        if self.scale.dtype != scale.dtype:
            self.scale = scale.to(self.scale.device)
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.npu.npu_int8_linear(x, self.weight, self.scale, self.bias, self.mode == "dynamic")

    def dequantized(self) -> torch.Tensor:
        """The weight that the layer stands for."""
        return self.weight * self.scale.unsqueeze(1)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}, mode={self.mode!r}"


def quantize_(
    model: nn.Module, mode: str = "weight_only", choose: Callable[[str, nn.Linear], bool] = lambda name, linear: True
) -> nn.Module:
    """Replaces the nn.Linear layers of a model for which choose(name, layer) holds, in place, and returns the model.

    A model that is itself an nn.Linear is not changed: the layer that takes its place is returned."""
    if mode not in MODES:
        raise ValueError(f"quantize_: expected mode in {MODES}, got {mode!r}")
    if type(model) is nn.Linear:
        return Int8Linear.from_linear(model, mode) if choose("", model) else model
    # A layer may stand at several places, and stays one layer.
    everything = model.named_modules(remove_duplicate=False)
    found = [(name, layer) for name, layer in everything if type(layer) is nn.Linear and choose(name, layer)]
    if not found:
        raise ValueError(
            f"quantize_: expected a model with nn.Linear layers to replace, got none in {type(model).__name__}"
        )
    made: dict[nn.Linear, Int8Linear] = {}
    for name, layer in found:
        parent, _, child = name.rpartition(".")
        if layer not in made:
            made[layer] = Int8Linear.from_linear(layer, mode)
        setattr(model.get_submodule(parent), child, made[layer])
    return model
