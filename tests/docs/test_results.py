"""What `bench --record` does to benchmarks/RESULTS.md."""

import pytest

from tests.support import ROOT
from torch_npu.bench.record import PLACE, record


def test_a_run_replaces_the_section_of_its_kind_and_no_other(tmp_path):
    page = tmp_path / "RESULTS.md"
    page.write_text(f"# Results\n\nbefore\n\n{PLACE}\nafter\n")
    for kind, text in (("ops", "first"), ("basic", "kept"), ("ops", "second")):
        record(page, kind, text, f"bench {kind}", threads=2)
    written = page.read_text()
    assert written.startswith("# Results\n\nbefore\n") and written.endswith("after\n")
    assert [word in written for word in ("first", "second", "kept")] == [False, True, True]
    assert written.count("<!-- bench: ops -->") == 1
    assert (
        "`bench ops`: 2" in written and "commit " in written and "cores" in written and "threads 2, torch " in written
    )


def test_a_page_without_a_place_is_refused_and_left_alone(tmp_path):
    page = tmp_path / "RESULTS.md"
    page.write_text("# Results\n")
    with pytest.raises(ValueError, match="expected the line '<!-- bench: here -->'"):
        record(page, "ops", "text", "bench ops", threads=1)
    assert page.read_text() == "# Results\n"


def test_the_page_of_the_tree_has_a_place():
    assert PLACE in (ROOT / "benchmarks" / "RESULTS.md").read_text()
