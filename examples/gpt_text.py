"""Trains a small GPT from nothing, letter by letter, on this project's documentation, and lets it write.

python examples/gpt_text.py [--device npu:0] [--steps 300] [--amp]
"""

import argparse
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm


class Layer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # [batch, length, 3 * width] to three times [batch, heads, length, width / heads]
        q, k, v = self.attend(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.think(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, letters: int, length: int, width: int, layers: int, heads: int = 4):
        super().__init__()
        self.length = length
        self.letter, self.place = nn.Embedding(letters, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        nn.init.normal_(self.letter.weight, std=0.1)
        nn.init.normal_(self.place.weight, std=0.1)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters, bias=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        places = torch.arange(text.shape[1], device=text.device)
        return self.head(self.norm(self.layers(self.letter(text) + self.place(places))))

    @torch.no_grad()
    def write(self, text: torch.Tensor, count: int) -> torch.Tensor:
        for _ in range(count):
            chances = F.softmax(self(text[:, -self.length :])[:, -1] / 0.7, -1)
            text = torch.cat((text, torch.multinomial(chances, 1)), 1)
        return text


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="npu:0", help="device to train on (default: npu:0)")
    parser.add_argument("--steps", type=int, default=300, help="(default: 300)")
    parser.add_argument("--batch", type=int, default=16, help="excerpts per step (default: 16)")
    parser.add_argument("--length", type=int, default=64, help="letters of an excerpt (default: 64)")
    parser.add_argument("--width", type=int, default=96, help="features of a letter (default: 96)")
    parser.add_argument("--layers", type=int, default=2, help="(default: 2)")
    parser.add_argument("--letters", type=int, default=200, help="to write at the end (default: 200)")
    parser.add_argument("--amp", action="store_true", help="products in bfloat16")
    options = parser.parse_args(arguments)
    if min(options.steps, options.batch, options.length, options.width, options.layers, options.letters) < 1:
        parser.error("expected --steps, --batch, --length, --width, --layers and --letters of at least 1")

    pages = sorted((Path(__file__).parent.parent / "docs").glob("*.md"))
    words = "\n".join(page.read_text() for page in pages)
    alphabet = sorted(set(words))
    number = {letter: i for i, letter in enumerate(alphabet)}
    text = torch.tensor([number[letter] for letter in words])

    torch.manual_seed(0)
    device = torch.device(options.device)
    model = GPT(len(alphabet), options.length, options.width, options.layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    text = text.to(device)
    offsets = torch.arange(options.length + 1, device=device)
    generator = torch.Generator().manual_seed(1)
    losses = []
    start, bar = time.perf_counter(), tqdm(range(options.steps), desc=options.device, unit="step", disable=None)
    for step in bar:
        starts = torch.randint(len(text) - options.length - 1, (options.batch, 1), generator=generator).to(device)
        excerpts = text[starts + offsets]
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=options.amp):
            loss = F.cross_entropy(model(excerpts[:, :-1]).flatten(0, 1), excerpts[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
        if step % 10 == 0:
            bar.set_postfix_str(f"loss {loss.item():.3f}")
    losses = torch.stack(losses).tolist()
    speed = options.steps * options.batch * options.length / (time.perf_counter() - start)
    print(f"{options.device}: loss {losses[0]:.3f} -> {losses[-1]:.3f}, {speed:,.0f} letters/s\n")
    written = model.eval().write(text[None, :16], options.letters)[0].tolist()
    print("".join(alphabet[i] for i in written))
    return 0 if losses[-1] < 0.8 * losses[0] else 1


if __name__ == "__main__":
    sys.exit(main())
