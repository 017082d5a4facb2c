"""Compiles a function for npu and compares it with the CPU."""

import torch
from torch._inductor.utils import run_and_get_code

import torch_npu


def to_npu(x):
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.npu(), x)


def to_cpu(x):
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.cpu(), x)


def check(fn, *args, kernels=None, fallbacks=(), tolerance=None, dynamic=None):
    """Compiles for npu, compares with the CPU and returns the generated code. `kernels` is the number of programs."""
    expected = fn(*args)
    result, codes = run_and_get_code(torch.compile(fn, fullgraph=True, dynamic=dynamic), *to_npu(args))
    tolerance = tolerance or {"rtol": 2e-5, "atol": 2e-5}
    torch.testing.assert_close(to_cpu(result), expected, **tolerance)
    assert set(torch_npu.fallback.report()) == set(fallbacks)
    code = "\n".join(codes)
    if kernels is not None:
        assert code.count(" = npu_kernel(") == kernels, code
    return code
