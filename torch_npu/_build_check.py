"""Compares the torch of this process with the one the libraries were compiled for, before any of them is loaded."""

import importlib.util

from torch_npu.version import TORCH

NOT_BUILT = "torch_npu is not built: run `make build` in its folder, or pip install --no-build-isolation ."


def _minor(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, _minor(version).split(".")))


def check() -> None:
    import torch

    lowest, highest = TORCH
    if not _number(lowest) <= _number(torch.__version__) <= _number(highest):
        raise ImportError(
            f"torch_npu is for torch {lowest} to {highest}, found {_minor(torch.__version__)}: "
            f"pip install torch=={highest}.0, then rebuild with pip install --no-build-isolation ."
        )
    try:
        from torch_npu._build_info import torch_version as built_for
    except ImportError:
        raise ImportError(NOT_BUILT) from None
    if _minor(torch.__version__) != _minor(built_for):
        raise ImportError(
            f"torch_npu was built for torch {_minor(built_for)}, found {_minor(torch.__version__)}: "
            "rebuild with pip install --no-build-isolation ."
        )
    if importlib.util.find_spec("torch_npu._C") is None:
        raise ImportError(NOT_BUILT)
