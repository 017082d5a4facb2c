"""Trains a small ResNet on pictures that the program draws: discs, squares, crosses and rings on a noisy ground.

python examples/resnet_shapes.py [--device npu:0] [--amp] [--steps 100]
"""

import argparse
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm

SHAPES = ("disc", "square", "cross", "ring")


def pictures(count: int, generator: torch.Generator, side: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures [count, 3, side, side] and the numbers of the shapes in them."""

    def draw(low: float, high: float, *shape: int) -> torch.Tensor:
        return torch.rand(count, *shape, 1, 1, generator=generator) * (high - low) + low

    labels = torch.randint(len(SHAPES), (count,), generator=generator)
    size, dx, dy = draw(0.3, 0.6), draw(-0.3, 0.3), draw(-0.3, 0.3)
    line = torch.linspace(-1, 1, side)
    x, y = line.view(1, 1, side) - dx, line.view(1, side, 1) - dy
    radius, largest = (x * x + y * y).sqrt(), torch.maximum(x.abs(), y.abs())
    inside = torch.stack(
        [
            radius < size,
            largest < 0.85 * size,
            (torch.minimum(x.abs(), y.abs()) < 0.25 * size) & (largest < size),
            (radius < size) & (radius > 0.6 * size),
        ]
    )[labels, torch.arange(count)]
    ground = draw(-0.5, 0.5, 3) + 0.2 * torch.randn(count, 3, side, side, generator=generator)
    return ground + inside.unsqueeze(1) * draw(0.6, 1.5, 3), labels


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.around = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.around(x))


def resnet(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 1, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        Block(width, width, 1),
        Block(width, 2 * width, 2),
        Block(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, len(SHAPES)),
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="npu:0", help="device to train on (default: npu:0)")
    parser.add_argument("--steps", type=int, default=100, help="(default: 100)")
    parser.add_argument("--batch", type=int, default=32, help="pictures per step (default: 32)")
    parser.add_argument("--width", type=int, default=16, help="channels of the first layers (default: 16)")
    parser.add_argument("--amp", action="store_true", help="convolutions in bfloat16")
    options = parser.parse_args(arguments)
    if min(options.steps, options.batch, options.width) < 1:
        parser.error("expected --steps, --batch and --width of at least 1")

    torch.manual_seed(0)
    device = torch.device(options.device)
    model = resnet(options.width).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=options.steps)
    generator = torch.Generator().manual_seed(1)
    start, bar = time.perf_counter(), tqdm(range(options.steps), desc=options.device, unit="step", disable=None)
    for _ in bar:
        images, labels = (t.to(device) for t in pictures(options.batch, generator))
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=options.amp):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        schedule.step()
        bar.set_postfix_str(f"loss {loss.item():.4f}")
    seconds = time.perf_counter() - start
    model.eval()
    with torch.no_grad():
        images, labels = (t.to(device) for t in pictures(256, generator))
        accuracy = (model(images).argmax(1) == labels).float().mean().item()
    speed = options.steps * options.batch / seconds
    print(f"{options.device}: loss {loss.item():.4f}, {accuracy:.1%} of new pictures right, {speed:,.0f} pictures/s")
    return 0 if accuracy > 0.8 else 1


if __name__ == "__main__":
    sys.exit(main())
