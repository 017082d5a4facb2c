"""torch_npu: PyTorch on any chip that brings eight commands.

`import torch` loads this package by itself (entry point group torch.backends), so that
`torch.ones(2, device="npu")` works; `import torch_npu` gives its own tools as well.

A folder imports those above it in this list, and modules beside this file (tools/check_layers.py):

    console/     what commands, benches and reports print with
    npu/         torch.npu
    compile/     torch.compile on npu
    report/      torch_npu.report: what of a model runs on the device, and what to do next
    testing/     conformance: PyTorch's own databases of ops, modules and optimizers
    bench/       what `bench` measures
    new_driver/  the project that `new-driver` writes
    cli/         python -m torch_npu
"""

import sys
import warnings
from typing import TYPE_CHECKING

from torch_npu.version import __version__ as __version__

if TYPE_CHECKING:
    from torch_npu.report import report as report  # the package, which can be called as the function

_MODULES = "compile config debug fallback legalisation native npu optim quantization report sanitizer whatif".split()
# The names by which other libraries call them; torch.ops.npu has the same ones (docs/fused-ops.md).
_FUSED_OPS = [
    f"npu_{name}" for name in "add_rms_norm dynamic_quant fusion_attention geglu rms_norm rotary_mul swiglu".split()
]
_FUNCTIONS = {  # name to module and name in it
    "add_driver": ("_info", "add_driver"),
    "drivers": ("_info", "drivers"),
    "include_path": ("_info", "include_path"),
    "native_report": ("native", "report"),
    "optimize_lora": ("lora", "optimize_lora"),
    "verify": ("verification", "verify"),
}
__all__ = sorted(["__version__", *_MODULES, *_FUSED_OPS, *_FUNCTIONS])

_ready = False


def _autoload() -> None:
    """Called by `import torch`. A failure warns here, and `import torch_npu` raises it."""
    if _ready or not _in_torch_import:  # `import torch_npu` came first: it finishes the work itself, below
        return
    _check_environment()
    try:
        _setup()
    except Exception as error:
        for name in [n for n in sys.modules if n == "torch_npu" or n.startswith("torch_npu.")]:
            del sys.modules[name]  # so that `import torch_npu` tries again and raises
        warnings.warn(f"the npu device is not available: {error}", stacklevel=2)
        return
    _sanitize()


def _check_environment() -> None:
    """Raises for a value that no setting has, even in `import torch`: a misspelt TORCH_NPU_FALLBACK=error would let
    everything pass."""
    from torch_npu import config

    config.check_environment()


def _setup() -> None:
    """Makes the device known to torch. Safe to call again after a failure."""
    global _ready
    from torch_npu._build_check import check

    check()
    from torch_npu import _register

    _register.register()
    _ready = True


def _sanitize() -> None:
    """Raises for a word that the sanitizer does not know, even in `import torch`: a check that looks for nothing would
    pass."""
    from torch_npu import _C

    _C.sanitizer_from_environment()


def __getattr__(name: str):
    import importlib

    if name in (*_MODULES, "testing"):
        return importlib.import_module(f"torch_npu.{name}")
    if name in _FUSED_OPS:
        import torch

        return getattr(torch.ops.npu, name)
    if name in _FUNCTIONS:
        module, function = _FUNCTIONS[name]
        return getattr(importlib.import_module(f"torch_npu.{module}"), function)
    raise AttributeError(f"module 'torch_npu' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


# True while torch itself is being imported: then torch calls _autoload as soon as this module is there, and an
# exception here would break `import torch`.
_in_torch_import = "torch" in sys.modules and getattr(sys.modules["torch"].__spec__, "_initializing", False)

# Why the device is not there, in `python -m torch_npu doctor`: to say so is what that is for.
_import_error: Exception | None = None


def _is_doctor() -> bool:
    """While `python -m torch_npu doctor` imports this package, sys.argv starts with -m."""
    return sys.argv[:2] == ["-m", "doctor"] and "torch_npu" in sys.orig_argv


if not _in_torch_import:
    import torch  # noqa: F401  (runs _autoload, which leaves the work to the next lines)

    for step in (_check_environment, _setup, _sanitize):
        try:
            step()
        except Exception as error:
            if not _is_doctor():
                raise
            _import_error = _import_error or error
