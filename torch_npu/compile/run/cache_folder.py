"""The folder of Inductor's cache: one that takes no files is replaced before anything needs it.

Dynamo asks for the folder when it is imported, and generated code goes through a file, so without a folder nothing
works, not even without a cache."""

import atexit
import functools
import logging
import os
import shutil
import tempfile

from torch._inductor.runtime.cache_dir_utils import cache_dir

log = logging.getLogger("torch_npu.compile")


@functools.cache
def ensure(wanted: str | None) -> None:
    """Where the folder, TORCHINDUCTOR_CACHE_DIR as `wanted`, takes no files, a temporary one serves this process."""
    try:
        with tempfile.TemporaryFile(dir=cache_dir()):
            return
    except OSError as error:
        reason = error
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder = tempfile.mkdtemp(prefix="torchinductor_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    log.warning(
        "torch.compile caches nothing beyond this process: expected TORCHINDUCTOR_CACHE_DIR to be writable, got %s",
        reason,
    )


def check() -> None:
    ensure(os.environ.get("TORCHINDUCTOR_CACHE_DIR"))


check()
