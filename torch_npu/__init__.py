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

from torch_npu.version import __version__

__all__ = [
    "__version__",
    "add_driver",
    "compile",
    "config",
    "debug",
    "drivers",
    "fallback",
    "include_path",
    "native",
    "native_report",
    "npu",
    "npu_add_rms_norm",
    "npu_dynamic_quant",
    "npu_fusion_attention",
    "npu_geglu",
    "npu_rms_norm",
    "npu_rotary_mul",
    "npu_swiglu",
    "optim",
    "optimize_lora",
    "quantization",
    "report",
    "sanitizer",
    "verify",
    "whatif",
]

# The names by which other libraries call them; torch.ops.npu has the same ones (docs/fused-ops.md).
_FUSED_OPS = {
    "npu_add_rms_norm",
    "npu_dynamic_quant",
    "npu_fusion_attention",
    "npu_geglu",
    "npu_rms_norm",
    "npu_rotary_mul",
    "npu_swiglu",
}

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

    if name in (
        "compile",
        "debug",
        "fallback",
        "native",
        "config",
        "npu",
        "optim",
        "quantization",
        "report",
        "sanitizer",
        "testing",
        "whatif",
    ):
        return importlib.import_module(f"torch_npu.{name}")
    if name in _FUSED_OPS:
        import torch

        return getattr(torch.ops.npu, name)
    if name in ("add_driver", "drivers", "driver_error", "include_path"):
        return getattr(importlib.import_module("torch_npu._info"), name)
    if name == "verify":
        return importlib.import_module("torch_npu.verification").verify
    if name == "optimize_lora":
        return importlib.import_module("torch_npu.lora").optimize_lora
    if name == "native_report":
        return importlib.import_module("torch_npu.native").report
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
