"""NpuFusedAdamW: the name by which transformers' Trainer asks for a fused AdamW (optim="adamw_torch_npu_fused")."""

from __future__ import annotations

from typing import Any

import torch


class NpuFusedAdamW(torch.optim.AdamW):
    """torch.optim.AdamW(fused=True): one command per parameter and step."""

    def __init__(
        self,
        params: Any,
        lr: float | torch.Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, fused=True, **options)

    def clip_grad_norm_fused_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """torch.nn.utils.clip_grad_norm_ over the parameters of this optimizer."""
        params = [p for group in self.param_groups for p in group["params"]]
        return torch.nn.utils.clip_grad_norm_(params, max_norm, norm_type)
