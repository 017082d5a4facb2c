"""NpuFusedAdamW: the name by which transformers' Trainer asks for a fused AdamW (optim="adamw_torch_npu_fused")."""

from __future__ import annotations

from typing import Any

import torch


class NpuFusedAdamW(torch.optim.AdamW):
    """torch.optim.AdamW(fused=True)."""

    def __init__(self, params: Any, **options: Any) -> None:
        super().__init__(params, fused=True, **options)
