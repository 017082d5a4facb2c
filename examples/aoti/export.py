"""Makes a package of LeNet for npu, for any batch from 1 to 64: python export.py model.pt2

The package runs in Python (torch._inductor.aoti_load_package) and in C++ (run_package.cpp)."""

import sys

import torch

from torch_npu.bench.networks import lenet


def ramps(batch: int) -> torch.Tensor:
    """The images that run_package.cpp makes."""
    return torch.linspace(-1, 1, batch * 28 * 28).reshape(batch, 1, 28, 28)


def main(path: str) -> None:
    torch.manual_seed(0)
    model = lenet().eval().to("npu")
    batch = torch.export.Dim("batch", min=1, max=64)
    exported = torch.export.export(model, (ramps(4).to("npu"),), dynamic_shapes=({0: batch},))
    torch._inductor.aoti_compile_and_package(exported, package_path=path)
    packaged = torch._inductor.aoti_load_package(path)
    for size in (1, 3):
        print("batch", size, packaged(ramps(size).to("npu")).argmax(-1).tolist())


if __name__ == "__main__":
    main(*sys.argv[1:] or ["model.pt2"])
