"""Compares the torch of this process with the one the libraries were compiled for, before any of them is loaded."""

import importlib.util

NOT_BUILT = "torch_npu is not built: run `make build` in its folder, or pip install --no-build-isolation ."


def _minor(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


def check() -> None:
    import torch

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
