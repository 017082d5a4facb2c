"""A Chromium for machines that have none: the npm package @sparticuz/chromium carries a whole one, with its libraries.

    python -m tests.support.browser_install    into build/chromium, as browser.py does where it finds none

70 MB are fetched once. The archive must be the one whose checksum is written here.
"""

import hashlib
import io
import os
import tarfile
import urllib.request
from pathlib import Path

from tests.support import ROOT

FOLDER = ROOT / "build" / "chromium"
ADDRESS = "https://registry.npmjs.org/@sparticuz/chromium/-/chromium-{version}.tgz"
VERSION = "153.0.0"
SHA512 = (
    "8e2196a92bcf31dbb8f8ff538a562a011ef21063c41c8371fa50af13f36a34ef"
    "c41d8cc5ff1d615222394fa8a8548b7b744cbb9fcf1bcb24f4be4f9d9ec810c0"
)


def install(folder: Path = FOLDER) -> str:
    """The path of the browser. OSError if it cannot be fetched, ValueError if it is another file than it should be."""
    import brotli  # requirements.txt

    program = folder / "chromium"
    if program.exists():
        return str(program)
    with urllib.request.urlopen(ADDRESS.format(version=VERSION), timeout=60) as answer:
        archive = answer.read()
    found = hashlib.sha512(archive).hexdigest()
    if found != SHA512:
        raise ValueError(f"expected @sparticuz/chromium {VERSION} with SHA-512 {SHA512[:16]}..., got {found[:16]}...")
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as package:
        libraries = brotli.decompress(package.extractfile("package/bin/al2023.tar.br").read())
        with tarfile.open(fileobj=io.BytesIO(libraries)) as inner:
            inner.extractall(folder, filter="data")
        part = folder / "chromium.part"
        part.write_bytes(brotli.decompress(package.extractfile("package/bin/chromium.br").read()))
        part.chmod(0o755)
        os.replace(part, program)
    return str(program)


if __name__ == "__main__":
    print(install())
