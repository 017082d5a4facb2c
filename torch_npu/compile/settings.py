"""Settings that decide what is generated. Inductor makes them part of the key of cached code."""

import hashlib
import pathlib
import sys

from torch.utils._config_module import install_config_module


def _digest() -> str:
    digest = hashlib.sha256()
    for source in sorted(pathlib.Path(__file__).parent.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


# Code that another version of this package generated is not used again.
sources: str = _digest()

# A fused kernel reads and writes at most so many places, in at most so many operations. Both are below the limits of a
# program, because address arithmetic is not counted.
max_accesses: int = 48
max_operations: int = 450

# Whether hand-written attention, rotary embeddings and masks are rewritten (graph/patterns.py).
patterns: bool = True

install_config_module(sys.modules[__name__])
