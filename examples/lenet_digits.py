"""Trains a LeNet on scikit-learn's digits on the npu, and the same model on the CPU beside it.

Both start from the same weights and see the same batches, so their losses must agree; the run fails if they do not.

    python examples/lenet_digits.py [--device npu:0] [--epochs 8]
"""

import argparse
import sys
import time

import torch
from sklearn.datasets import load_digits
from torch import nn

import torch_npu

TOLERANCE = 1e-4


class LeNet(nn.Module):
    """Two rounds of convolution, tanh and average pooling, then three linear layers, as in 1998; for 16 x 16 images.

    Smooth on purpose. Where a relu's input is zero but for rounding, or a maximum is a tie, the last bit of a sum
    decides where a gradient goes, and two right devices part for good: with relu and max-pooling, PyTorch's own CPU run
    leaves its double precision run after 114 steps.
    """

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, kernel_size=5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, kernel_size=5, padding=2)
        self.pool = nn.AvgPool2d(2)
        self.fc1 = nn.Linear(16 * 4 * 4, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = self.pool(torch.tanh(self.conv1(x)))
        x = self.pool(torch.tanh(self.conv2(x)))
        x = x.flatten(1)
        x = torch.tanh(self.fc1(x))
        x = torch.tanh(self.fc2(x))
        return self.fc3(x)


def digits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Training images and labels, then test images and labels. Standardised; each 8 x 8 image is doubled to 16 x 16."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).sub(4.88).div(6.02).unsqueeze(1)
    images = images.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
    labels = torch.tensor(data.target, dtype=torch.int64)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1))
    test, train = order[:360], order[360:]
    return images[train], labels[train], images[test], labels[test]


class Progress:
    """A bar that rewrites its line on a terminal, and one line per epoch elsewhere."""

    def __init__(self, title: str, total: int):
        self.title, self.total, self.done = title, total, 0
        self.live = sys.stdout.isatty()

    def step(self, note: str) -> None:
        self.done += 1
        if self.live and (self.done % 5 == 0 or self.done == self.total):
            filled = 24 * self.done // self.total
            print(f"\r{self.title} [{'#' * filled}{'.' * (24 - filled)}] {note}\033[K", end="", flush=True)

    def finish(self, note: str) -> None:
        print(f"\r{self.title}: {note}\033[K" if self.live else f"{self.title}: {note}", flush=True)


def train(device: str, data, epochs: int, batch: int) -> tuple[list[float], float, float]:
    """Losses of all steps, accuracy on the test images, seconds."""
    images, labels, test_images, test_labels = (t.to(device) for t in data)
    torch.manual_seed(0)
    model = LeNet().to(device)  # made on the CPU: the same weights for every device
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    loss_function = nn.CrossEntropyLoss()
    shuffle = torch.Generator().manual_seed(2)
    losses = []
    start = time.perf_counter()
    for epoch in range(epochs):
        batches = torch.randperm(len(images), generator=shuffle).to(device).split(batch)
        progress = Progress(f"{device} epoch {epoch + 1}/{epochs}", len(batches))
        epoch_losses = []
        for indices in batches:
            optimizer.zero_grad()
            loss = loss_function(model(images[indices]), labels[indices])
            loss.backward()
            optimizer.step()
            epoch_losses.append(loss.detach())
            progress.step(f"step {progress.done + 1}/{progress.total}")
        losses += torch.stack(epoch_losses).tolist()
        progress.finish(f"loss {sum(losses[-len(batches) :]) / len(batches):.4f}")
    with torch.no_grad():
        right = (model(test_images).argmax(1) == test_labels).sum().item()
    return losses, right / len(test_labels), time.perf_counter() - start


def counts_table(title: str, counts: dict[str, int]) -> str:
    lines = [f"{title}:"]
    lines += [f"  {count:>8}  {name}" for name, count in counts.items()] or ["  none"]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="npu:0", help="device to train on (default: npu:0)")
    parser.add_argument("--epochs", type=int, default=8, help="passes over the data (default: 8)")
    parser.add_argument("--batch", type=int, default=32, help="images per step (default: 32)")
    options = parser.parse_args()
    if options.epochs < 1 or options.batch < 1:
        parser.error("expected --epochs and --batch of at least 1")

    data = digits()
    print(f"{torch.npu.get_device_name(options.device)} ({options.device}), {len(data[0])} training images")
    torch_npu.fallback.reset()
    with torch_npu.fallback.mode("quiet"), torch_npu.native.counting():
        losses, accuracy, seconds = train(options.device, data, options.epochs, options.batch)
    native, fallen = torch_npu.native_report(), torch_npu.fallback.report()
    cpu_losses, cpu_accuracy, cpu_seconds = train("cpu", data, options.epochs, options.batch)

    difference = max(abs(a - b) for a, b in zip(losses, cpu_losses, strict=True))
    agrees = difference <= TOLERANCE
    print()
    print(counts_table("commands that ran on the device, by op", native))
    print()
    print(counts_table("ops that fell back to the CPU", fallen))
    print()
    print(f"{'':<12}{'npu':>10}{'cpu':>10}")
    print(f"{'accuracy':<12}{accuracy:>10.3f}{cpu_accuracy:>10.3f}")
    print(f"{'last loss':<12}{losses[-1]:>10.5f}{cpu_losses[-1]:>10.5f}")
    print(f"{'seconds':<12}{seconds:>10.2f}{cpu_seconds:>10.2f}")
    verdict = "agrees with the CPU" if agrees else "DIFFERS from the CPU"
    print(f"\nloss curve {verdict}: {len(losses)} steps, largest difference {difference:.1e} (limit {TOLERANCE:.0e})")
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
