"""What tests share: places, and what a version of PyTorch lacks."""

from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ROOT / "torch_npu" / "lib"

# Kineto shows devices of PrivateUse1 from torch 2.12 on (docs/design/profiler.md).
PROFILED = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 12)
needs_profiler = pytest.mark.skipif(not PROFILED, reason="torch 2.11's profiler shows no devices of PrivateUse1")
