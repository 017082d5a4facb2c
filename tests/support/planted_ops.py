"""Entries for `conformance --load`: an op that works, and one for each way to fail on the device."""

import ctypes
import time

import torch
import torch._dynamo
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput


def samples(op_info, device, dtype, requires_grad, **kwargs):
    for size in (2, 3):
        yield SampleInput(torch.arange(size, device=device, dtype=dtype, requires_grad=requires_grad))


def misbehave(name):
    def op(x):
        if name == "break" and x.device.type == "npu":
            torch._dynamo.graph_break()
        if x.device.type == "npu" and x.numel() == 3:
            if name == "segfault":
                ctypes.string_at(0)
            elif name == "hang":
                time.sleep(3600)
            elif name == "raise":
                raise RuntimeError("planted")
            elif name == "wrong":
                return x + 2
        return x + 1

    return op


for name in ("segfault", "hang", "raise", "wrong", "break", "fine"):
    op_db.append(
        OpInfo(
            f"planted.{name}",
            op=misbehave(name),
            dtypes=(torch.float32,),
            sample_inputs_func=samples,
            supports_out=False,
            method_variant=None,
            inplace_variant=None,
        )
    )
