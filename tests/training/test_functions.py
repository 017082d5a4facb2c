"""torch.func and parametrizations: what differentiates and changes modules from outside."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_npu


def both(function) -> None:
    """`function` gives the same tensors on both devices, and nothing falls back."""
    torch_npu.fallback.reset()
    got = function("npu")
    assert torch_npu.fallback.report() == {}
    want = function("cpu")
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-4, atol=1e-5)


def test_torch_func():
    from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vmap

    def compute(device):
        torch.manual_seed(0)
        w, x = torch.randn(4, 3).to(device), torch.randn(5, 3).to(device)
        networks = [nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)).to(device) for _ in range(3)]
        parameters, buffers = stack_module_state(networks)
        images, conv = torch.randn(2, 3, 2, 6, 6).to(device), nn.Conv2d(2, 3, 3).to(device)

        def f(x):
            return (w @ x).tanh()

        def g(w, x):
            return (w @ x).sin().sum()

        yield vmap(grad(g), (None, 0))(w, x)
        yield jacrev(f)(x[0])
        yield jacfwd(f)(x[0])
        yield hessian(lambda x: g(w, x))(x[0])
        yield jvp(f, (x[0],), (x[1],))[1]
        yield vmap(lambda p, b: functional_call(networks[0], (p, b), (x,)))(parameters, buffers)
        yield vmap(conv)(images)
        yield from attention(device)

    def attention(device):
        """Queries, keys and values of each call; one mask for all."""
        q, k, v = torch.randn(3, 5, 2, 4, 6, 8).to(device)
        for options in ({}, {"is_causal": True}, {"attn_mask": torch.randn(6, 6).to(device)}, {"scale": 0.3}):

            def attend(q, k, v, options=options):
                return F.scaled_dot_product_attention(q, k, v, **options)

            yield vmap(attend)(q, k, v)
            yield vmap(attend, (0, None, None))(q, k[0], v[0])
            yield from vmap(grad(lambda *given: attend(*given).sin().sum(), argnums=(0, 1, 2)))(q, k, v)

    both(lambda device: list(compute(device)))


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm"])
def test_parametrizations(name):
    from torch.nn.utils import parametrizations, parametrize

    def compute(device):
        torch.manual_seed(0)
        layer = getattr(parametrizations, name)(nn.Linear(6, 4)).to(device)
        layer(torch.ones(2, 6, device=device)).sum().backward()
        gradients = [p.grad for p in layer.parameters()]
        parametrize.remove_parametrizations(layer, "weight")
        return [layer.weight, *gradients]

    both(compute)
