"""Matrix products and convolutions, forward and both gradients: PyTorch on the CPU against the device, in one process.

Blocks alternate, the ratio is that of the shortest blocks (a busy machine only ever adds time); larger is better.

python benchmarks/products_bench.py [--threads N] [--dtypes float32,bfloat16] [--cpu-time] [part of a name ...]
"""

import argparse
import math
import os
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # an idle OpenMP thread that spins would disturb the device

# name: (batch, in, size, out, kernel, options)
CONVOLUTIONS = {
    "resnet stem 7x7/2": (8, 3, (224, 224), 64, 7, dict(stride=2, padding=3)),
    "resnet layer1 3x3": (8, 64, (56, 56), 64, 3, dict(padding=1)),
    "resnet layer2 3x3/2": (8, 64, (56, 56), 128, 3, dict(stride=2, padding=1)),
    "resnet layer2 3x3": (8, 128, (28, 28), 128, 3, dict(padding=1)),
    "resnet layer2 1x1/2": (8, 64, (56, 56), 128, 1, dict(stride=2)),
    "resnet layer3 3x3": (16, 256, (14, 14), 256, 3, dict(padding=1)),
    "resnet layer4 3x3": (16, 512, (7, 7), 512, 3, dict(padding=1)),
    "resnet layer1 b32": (32, 64, (56, 56), 64, 3, dict(padding=1)),
    "lenet conv1 5x5": (64, 1, (28, 28), 6, 5, dict(padding=2)),
    "lenet conv2 5x5": (64, 6, (14, 14), 16, 5, dict()),
    "bottleneck 1x1": (8, 256, (56, 56), 64, 1, dict()),
    "bottleneck 1x1 wide": (8, 512, (28, 28), 128, 1, dict()),
    "convnext depthwise 7x7": (8, 96, (56, 56), 96, 7, dict(padding=3, groups=96)),
    "mobilenet depthwise 3x3": (8, 144, (56, 56), 144, 3, dict(padding=1, groups=144)),
    "mobilenet depthwise 3x3/2": (8, 144, (56, 56), 144, 3, dict(stride=2, padding=1, groups=144)),
    "resnext grouped 3x3": (8, 128, (56, 56), 128, 3, dict(padding=1, groups=32)),
    "dilated 3x3": (4, 64, (56, 56), 64, 3, dict(padding=2, dilation=2)),
    "transposed 4x4/2": (8, 128, (16, 16), 64, 4, dict(stride=2, padding=1, transposed=True)),
    "whisper conv1d 3": (4, 80, (3000,), 384, 3, dict(padding=1)),
    "whisper conv1d 3/2": (4, 384, (3000,), 384, 3, dict(stride=2, padding=1)),
    "mamba depthwise conv1d": (4, 1536, (512,), 1536, 4, dict(padding=3, groups=1536)),
    "conv3d 3x3x3": (2, 16, (16, 28, 28), 32, 3, dict(padding=1)),
    "vit patches 16x16/16": (8, 3, (224, 224), 384, 16, dict(stride=16)),
    "channels_last layer1": (8, 64, (56, 56), 64, 3, dict(padding=1, channels_last=True)),
    "channels_last layer3": (16, 256, (14, 14), 256, 3, dict(padding=1, channels_last=True)),
    "channels_last 1x1": (8, 256, (56, 56), 64, 1, dict(channels_last=True)),
    "channels_last depthwise 7x7": (8, 96, (56, 56), 96, 7, dict(padding=3, groups=96, channels_last=True)),
}


def products(torch, rand):
    """Name to function; operands are made when a function is first asked for."""

    def mm(m, n, k):
        a, b = rand(m, k), rand(k, n)
        return lambda: torch.mm(a, b)

    def linear(m, n, k, bias=True):
        x, w, b = rand(m, k), rand(n, k), rand(n) if bias else None
        return lambda: torch.nn.functional.linear(x, w, b)

    def transposed(m, n, k):  # the weight gradient of linear
        a, b = rand(k, m).t(), rand(k, n)
        return lambda: torch.mm(a, b)

    def bmm(batch, m, n, k, key_transposed=False):
        a, b = rand(batch, m, k), rand(batch, n, k).transpose(1, 2) if key_transposed else rand(batch, k, n)
        return lambda: torch.bmm(a, b)

    def heads(batch, count, length, width):  # [batch, length, heads, width] as attention sees it
        q, k = (rand(batch, length, count, width).transpose(1, 2) for _ in range(2))
        return lambda: torch.matmul(q, k.transpose(2, 3))

    return {
        "mm 64": lambda: mm(64, 64, 64),
        "mm 256": lambda: mm(256, 256, 256),
        "mm 512": lambda: mm(512, 512, 512),
        "mm 1024": lambda: mm(1024, 1024, 1024),
        "mm 2048": lambda: mm(2048, 2048, 2048),
        "mm 1000x1000x1000": lambda: mm(1000, 1000, 1000),
        "mm transposed 768x768x1024": lambda: transposed(768, 768, 1024),
        "linear 512x3072x768": lambda: linear(512, 3072, 768),
        "linear 512x768x3072": lambda: linear(512, 768, 3072),
        "linear 32x4096x1024": lambda: linear(32, 4096, 1024),
        "linear 8x1000x512": lambda: linear(8, 1000, 512),
        "linear 128x896x896": lambda: linear(128, 896, 896, False),
        "lora down 512x8x768": lambda: linear(512, 8, 768, False),
        "lora up 512x768x8": lambda: linear(512, 768, 8, False),
        "lora down 512x16x768": lambda: linear(512, 16, 768, False),
        "lora grad 768x16x512": lambda: transposed(768, 16, 512),
        "decode 1x896x896": lambda: linear(1, 896, 896),
        "decode 1x4864x896": lambda: linear(1, 4864, 896, False),
        "decode vocabulary 1x151936x896": lambda: linear(1, 151936, 896, False),
        "mm row 1x1024x1024": lambda: mm(1, 1024, 1024),
        "decode 4x4864x896": lambda: linear(4, 4864, 896, False),
        "bmm 96 128x64x128": lambda: bmm(96, 128, 64, 128),
        "bmm 96 128x128x64 t": lambda: bmm(96, 128, 128, 64, True),
        "bmm 64 32x32x64 t": lambda: bmm(64, 32, 32, 64, True),
        "bmm 512 16x16x16": lambda: bmm(512, 16, 16, 16),
        "heads 8x12 128x64": lambda: heads(8, 12, 128, 64),
        "heads 4x12 512x64": lambda: heads(4, 12, 512, 64),
    }


def convolutions(torch, rand):
    def case(n, c, size, o, kernel, channels_last=False, transposed=False, **options):
        rank, groups = len(size), options.get("groups", 1)
        layout = dict(memory_format=torch.channels_last) if channels_last else {}
        x = rand(n, c, *size).contiguous(**layout)
        channels = (c, o // groups) if transposed else (o, c // groups)
        w = rand(*channels, *[kernel] * rank).contiguous(**layout)
        name = f"conv_transpose{rank}d" if transposed else f"conv{rank}d"
        forward = lambda: getattr(torch.nn.functional, name)(x, w, **options)  # noqa: E731
        y = torch.ones_like(forward())
        every = {"stride": 1, "padding": 0, "dilation": 1} | options
        lists = [[every[key]] * rank for key in ("stride", "padding", "dilation")]

        def backward(mask):
            return lambda: torch.ops.aten.convolution_backward(
                y, x, w, None, *lists, transposed, [0] * rank, groups, [*mask, False]
            )

        return {"": forward, " grad input": backward((True, False)), " grad weight": backward((False, True))}

    made = {}

    def part(name, suffix):
        if made.get("name") != name:  # one convolution's tensors at a time
            *shape, options = CONVOLUTIONS[name]
            made.clear()
            made.update(name=name, parts=case(*shape, **options))
        return made["parts"][suffix]

    return {
        name + suffix: lambda name=name, suffix=suffix: part(name, suffix)
        for name in CONVOLUTIONS
        for suffix in ("", " grad input", " grad weight")
    }


clock = time.perf_counter


def block(torch, op, seconds):
    """Seconds per call over about `seconds`; the device is waited for at the end."""
    count, start = 0, clock()
    while True:
        op()
        count += 1
        if count & (count - 1) == 0 or count % 16 == 0:
            torch.npu.synchronize()
            spent = clock() - start
            if spent > seconds:
                return spent / count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[""], help="parts of names")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--seconds", type=float, default=0.15, help="per case and side")
    parser.add_argument("--cpu-time", action="store_true", help="for a busy machine, with one thread")
    args = parser.parse_args()
    global clock
    clock = time.process_time if args.cpu_time else clock
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    os.environ.setdefault("TORCH_NPU_DRIVER", f"cmodel:threads={args.threads}")
    import torch

    import torch_npu  # noqa: F401

    torch.set_num_threads(args.threads)
    for dtype in args.dtypes.split(","):
        sides = []
        for device in ("cpu", "npu"):
            generator = torch.Generator().manual_seed(1)

            def rand(*shape, device=device, generator=generator):
                return torch.randn(*shape, generator=generator).to(device, getattr(torch, dtype))  # noqa: B023

            sides.append(products(torch, rand) | convolutions(torch, rand))
        ratios = {}
        for name in sides[0]:
            if not any(part in name for part in args.names):
                continue
            ops = [side[name]() for side in sides]
            best = [min(block(torch, op, 0) for _ in range(2)) for op in ops]
            rounds = max(3, min(15, int(args.seconds / max(best))))
            for _ in range(rounds):
                best = [min(b, block(torch, op, args.seconds / rounds)) for b, op in zip(best, ops, strict=True)]
            ratio = best[0] / best[1]
            family = "grad" if "grad" in name else "conv" if name in sides[0] and name in CONVOLUTIONS else "product"
            ratios.setdefault(family, []).append(ratio)
            print(
                f"{dtype:9s} {name:40s} cpu {best[0] * 1e6:9.1f} us  npu {best[1] * 1e6:9.1f} us  cpu/npu {ratio:5.2f}",
                flush=True,
            )
        for family, values in ratios.items():
            mean = math.exp(sum(map(math.log, values)) / len(values))
            print(f"{dtype:9s} {family}: geometric mean {mean:.2f}, smallest {min(values):.2f} of {len(values)}")


if __name__ == "__main__":
    main()
