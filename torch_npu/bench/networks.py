"""Models that benchmarks, examples and tests share: LeNet, ResNet-18 and a small transformer, written out here."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn


def lenet() -> nn.Sequential:
    """For images of 1 x 28 x 28 in ten classes."""
    convolutions = (nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU())
    dense = (nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 5 * 5, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU())
    return nn.Sequential(*convolutions, *dense, nn.Linear(84, 10))


class Block(nn.Module):
    """Two 3x3 convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.around: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.around = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.around(x), inplace=True)


class ResNet18(nn.Module):
    def __init__(self, classes: int = 1000, width: int = 64):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        widths = [width << stage for stage in (0, 0, 0, 1, 1, 2, 2, 3, 3)]
        self.blocks = nn.Sequential(*(Block(a, b, 1 + (a != b)) for a, b in zip(widths, widths[1:])))
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))


class Transformer(nn.Module):
    """A language model: embedding, four encoder layers under a causal mask, a head over the vocabulary."""

    def __init__(self, width: int, length: int, vocabulary: int = 1000, layers: int = 4):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.place = nn.Parameter(torch.randn(length, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.token(tokens) + self.place, mask=self.mask, is_causal=True))


def resnet18(device: str, quick: bool) -> Callable:
    torch.manual_seed(0)
    model = ResNet18().to(device)
    batch, side = (2, 64) if quick else (8, 128)
    images, labels = torch.randn(batch, 3, side, side).to(device), torch.randint(1000, (batch,)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    return _step(model, optimizer, images, labels)


def transformer(device: str, quick: bool) -> Callable:
    torch.manual_seed(0)
    batch, length, width = (2, 32, 128) if quick else (8, 128, 512)
    model = Transformer(width, length).to(device)
    tokens = torch.randint(1000, (batch, length + 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return _step(model, optimizer, tokens[:, :-1], tokens[:, 1:])


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor, labels: torch.Tensor) -> Callable:
    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs).flatten(0, -2), labels.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


MODELS = {"ResNet-18": resnet18, "transformer, 4 layers": transformer}
