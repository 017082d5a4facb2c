"""Times ops on the CPU and on the device in one process, blocks alternating, and prints cpu / npu (larger is better).

python benchmarks/ops_bench.py [--threads N] [--sizes 1e5,1e6] [part of a name]
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # an idle OpenMP thread that spins would disturb the device


def cases(torch, n, device):
    cols = 1000 if n >= 100_000 else 100
    rows = n // cols
    generator = torch.Generator().manual_seed(1)

    def rand(*shape):
        return torch.randn(*shape, generator=generator).to(device)

    x, y, row, column = rand(rows, cols), rand(rows, cols), rand(cols), rand(rows, 1)
    side = max(16, int(n ** (1 / 2)) // 2)
    a, b, bias = rand(side, side), rand(side, side), rand(side)
    out = torch.empty_like(x)
    cube = x.view(rows // 10, 10, cols)
    image, weight = rand(4, 16, 32, 32), rand(32, 16, 3, 3)
    return {
        "add": lambda: torch.add(x, y, out=out),
        "add row": lambda: torch.add(x, row, out=out),
        "add column": lambda: torch.add(x, column, out=out),
        "add transposed": lambda: torch.add(x, y.view(cols, rows).t(), out=out),
        "relu": lambda: torch.relu(x),
        "compare": lambda: torch.gt(x, y),
        "sum all": lambda: x.sum(),
        "sum rows": lambda: x.sum(1),
        "sum columns": lambda: x.sum(0),
        "sum middle": lambda: cube.sum(1),
        f"mm {side}": lambda: torch.mm(a, b),
        f"addmm {side}": lambda: torch.addmm(bias, a, b),
        f"addmm scaled {side}": lambda: torch.addmm(a, a, b, alpha=0.5, beta=0.3),
        "conv 3x3": lambda: torch.conv2d(image, weight, padding=1),
    }


def block(torch, op, seconds):
    """Seconds per call over about `seconds`; the device is waited for at the end."""
    count, start = 0, time.perf_counter()
    while True:
        op()
        count += 1
        if count & (count - 1) == 0 or count % 64 == 0:
            torch.npu.synchronize()
            spent = time.perf_counter() - start
            if spent > seconds:
                return spent / count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", default="", help="part of a name")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sizes", default="1e5,1e6")
    parser.add_argument("--blocks", type=int, default=9)
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    os.environ.setdefault("TORCH_NPU_DRIVER", f"cmodel:threads={args.threads}")
    import torch

    import torch_npu  # noqa: F401

    torch.set_num_threads(args.threads)
    for size in args.sizes.split(","):
        n = int(float(size))
        cpu, npu = cases(torch, n, "cpu"), cases(torch, n, "npu")
        for name in cpu:
            if args.name not in name:
                continue
            times = ([], [])
            for op in (cpu[name], npu[name]):
                block(torch, op, 0.002)
            for _ in range(args.blocks):
                times[0].append(block(torch, cpu[name], 0.01))
                times[1].append(block(torch, npu[name], 0.01))
            c, d = (statistics.median(t) * 1e6 for t in times)
            best = min(times[0]) / min(times[1])
            print(
                f"{size:>5} {name:18s} cpu {c:9.1f} us  npu {d:9.1f} us  cpu/npu {c / d:5.2f}  best {best:5.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
