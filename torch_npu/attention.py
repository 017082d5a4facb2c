"""npu_fusion_attention: the attention call that transformers makes on a device named npu.

It is scaled_dot_product_attention with other names: a mask says where *not* to look, a layout says where the heads are.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.functional import scaled_dot_product_attention

# To [batch, heads, length, features] and back; H is heads * features in one dimension.
_LAYOUTS = ("BSH", "SBH", "BSND", "BNSD", "TND")


def _spread(x: torch.Tensor, heads: int, layout: str) -> torch.Tensor:
    if layout == "BNSD":
        return x
    if layout == "BSND":
        return x.transpose(1, 2)
    x = x.unflatten(-1, (heads, -1))
    return x.transpose(1, 2) if layout == "BSH" else x.permute(1, 2, 0, 3)


def _gather(x: torch.Tensor, layout: str) -> torch.Tensor:
    if layout == "BNSD":
        return x
    if layout == "BSND":
        return x.transpose(1, 2)
    return x.transpose(1, 2).flatten(2) if layout == "BSH" else x.permute(2, 0, 1, 3).flatten(2)


def _allowed(mask: torch.Tensor | None, mode: int, queries: int, keys: int, device) -> tuple[torch.Tensor | None, bool]:
    """The mask of scaled_dot_product_attention (True: look there), and whether is_causal says the same."""
    if mode in (0, 1):
        return (None if mask is None else mask.logical_not()), False
    if mode == 2 or (mode == 3 and queries == keys):
        return None, True
    if mode == 3:  # the last query sees every key
        return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries), False
    raise ValueError(
        f"npu_fusion_attention: expected sparse_mode 0 or 1 (the mask as given), 2 (causal from the first key) or 3 "
        f"(causal to the last key), got {mode}"
    )


def npu_fusion_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    head_num: int,
    input_layout: str,
    pse: torch.Tensor | None = None,
    padding_mask: torch.Tensor | None = None,
    atten_mask: torch.Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = 2147483647,
    next_tockens: int = 2147483647,
    inner_precise: int = 0,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    **_ignored,
) -> tuple[torch.Tensor]:
    """Attention over `head_num` query heads; keys and values may have fewer. Works on every device, with gradients.

    The result is the first member of a tuple. atten_mask: True where a query must not look. pse: added to the scores.
    In the layout TND several sequences lie one behind the other, and actual_seq_* say where each ends.
    """
    if input_layout not in _LAYOUTS:
        raise ValueError(f"npu_fusion_attention: expected input_layout in {_LAYOUTS}, got {input_layout!r}")
    for name, given in (("padding_mask", padding_mask), ("prefix", prefix)):
        if given is not None:
            raise NotImplementedError(f"npu_fusion_attention: expected {name}=None, got a value; use atten_mask")
    if min(pre_tockens, next_tockens) < 2147483647 and sparse_mode in (0, 4):
        raise NotImplementedError("npu_fusion_attention: expected no pre_tockens or next_tockens; use atten_mask")

    def attend(q, k, v):
        mask, causal = _allowed(atten_mask, sparse_mode, q.shape[-2], k.shape[-2], q.device)
        if pse is not None:
            if causal:
                mask, causal = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril(), False
            mask = pse if mask is None else pse.masked_fill(mask.logical_not(), float("-inf"))
        return scaled_dot_product_attention(
            q, k, v, mask, 1.0 - keep_prob, causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        )

    if input_layout == "TND":
        if actual_seq_qlen is None or actual_seq_kvlen is None:
            raise ValueError("npu_fusion_attention: the layout TND needs actual_seq_qlen and actual_seq_kvlen")
        parts, q0, k0 = [], 0, 0
        for q1, k1 in zip(actual_seq_qlen, actual_seq_kvlen, strict=True):
            q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (query[q0:q1], key[k0:k1], value[k0:k1]))
            parts.append(attend(q, k, v).squeeze(0).transpose(0, 1))
            q0, k0 = q1, k1
        return (torch.cat(parts),)
    heads = head_num
    q = _spread(query, heads, input_layout)
    if input_layout in ("BSH", "SBH"):
        heads = key.shape[-1] // q.shape[-1]
    k, v = _spread(key, heads, input_layout), _spread(value, heads, input_layout)
    return (_gather(attend(q, k, v), input_layout),)
