"""An op of your own, from Python: a kernel for the device, one for the CPU, shapes, a gradient; then a model uses it.

squareplus(x, b) = (x + sqrt(x * x + b)) / 2, a smooth relu. In C++ it would be one command: docs/adding-an-op.md.

    python examples/custom_op.py [--device npu:0]
"""

import argparse
import sys

import torch
from torch import nn


@torch.library.custom_op("example::squareplus", mutates_args=(), device_types="npu")
def squareplus(x: torch.Tensor, b: float) -> torch.Tensor:
    return torch.addcmul(torch.full_like(x, b), x, x).sqrt_().add_(x).mul_(0.5)


@squareplus.register_kernel("cpu")
def _(x, b):
    return (x + torch.sqrt(x * x + b)) / 2


@squareplus.register_fake
def _(x, b):
    return torch.empty_like(x)


def setup_context(ctx, inputs, output):
    x, ctx.b = inputs
    ctx.save_for_backward(x)


def backward(ctx, grad):
    (x,) = ctx.saved_tensors
    return grad * (1 + x / torch.sqrt(x * x + ctx.b)) / 2, None


squareplus.register_autograd(backward, setup_context=setup_context)


class SquarePlus(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return squareplus(x, 0.25)


def train(device: str, steps: int) -> list[float]:
    """A network with the op in it learns a sine."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 64), SquarePlus(), nn.Linear(64, 64), SquarePlus(), nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    x = torch.linspace(-3, 3, 128, device=device).unsqueeze(1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (model(x) - torch.sin(x)).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="npu:0", help="device to run on (default: npu:0)")
    parser.add_argument("--steps", type=int, default=300, help="of training (default: 300)")
    options = parser.parse_args(arguments)

    x = torch.randn(5, 7, device=options.device, requires_grad=True)
    difference = (squareplus(x, 1.0).cpu() - squareplus(x.cpu(), 1.0)).abs().max().item()
    print(f"largest difference to the CPU's kernel: {difference:.1e}")
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    checks = torch.library.opcheck(squareplus, (x, 1.0), test_utils=tests, raise_exception=False)
    for name, answer in checks.items():
        print(f"  {name}: {answer}")
    losses = train(options.device, options.steps)
    print(f"a network with it learns a sine: loss {losses[0]:.4f} -> {losses[-1]:.6f}")
    right = difference < 1e-5 and set(checks.values()) == {"SUCCESS"} and losses[-1] < 0.1 * losses[0]
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
