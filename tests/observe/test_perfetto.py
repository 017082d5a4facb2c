"""A profile in Perfetto itself, in a browser: nothing of it is dropped, and host and device are linked by arrows."""

import json

import pytest
import torch
from torch.profiler import profile, record_function

from tests.support import needs_profiler
from tests.support.browser import Browser
from tests.support.perfetto import Perfetto
from torch_npu.bench import qwen2

pytestmark = needs_profiler

LANES = """
select process.name as process, thread.name as lane, count(*) as slices from slice
join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid) group by 1, 2
"""
ARROWS = """
select start.name as start, work.name as work, work.id as number from flow
join slice start on flow.slice_out = start.id join slice work on flow.slice_in = work.id where work.category = 'kernel'
"""


@pytest.fixture(scope="module")
def browser():
    with Browser() as one:
        yield one


def lost(opened: Perfetto, events: list[dict]) -> list[str]:
    """What is in the file and not in Perfetto."""
    (seen,) = opened.query("select (select count(*) from slice) as slices, (select count(*) from flow) as arrows")
    slices = sum(event.get("ph") in ("X", "i") for event in events)
    arrows = sum(event.get("ph") == "s" for event in events)
    found = [f"{name}: {count}" for name, count in opened.problems().items()]
    if seen["slices"] != slices:
        found.append(f"{slices - seen['slices']} of {slices} slices")
    if seen["arrows"] != arrows:
        found.append(f"{arrows - seen['arrows']} of {arrows} arrows")
    return found


def test_a_lora_step_of_qwen2_opens_with_lanes_and_arrows(browser, tmp_path, cmodel):
    step = qwen2.lora_step(qwen2.make("0.5b", torch.float32, quick=True), "npu").run
    step()
    torch.npu.synchronize()
    with profile() as profiled, record_function("the step"):
        step()
        torch.npu.synchronize()
    path = tmp_path / "trace.json"
    profiled.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    with Perfetto(browser, path) as opened:
        assert lost(opened, events) == []
        lanes = {(row["process"], row["lane"]): row["slices"] for row in opened.query(LANES)}
        work = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy")]
        assert lanes["npu:0 (C model)", "stream 0"] == len(work) > 100
        hosts = [lane for process, lane in lanes if process == "python"]
        assert len(hosts) == 2  # the backward pass has a thread of its own
        arrows = opened.query(ARROWS)
        assert len(arrows) == sum(event["cat"] == "kernel" for event in work)
        assert {arrow["start"] for arrow in arrows} == {"submit"}
        product = next(arrow for arrow in arrows if arrow["work"].endswith("MATMUL"))
        assert opened.select(product["number"]) == [["submit", product["work"]]]
        for text in ("npu:0 (C model)", "stream 0", product["work"], "Preceding Flows"):
            opened.page.wait(f"document.body.innerText.includes({json.dumps(text)})")


LANE = {"ph": "M", "pid": 1, "tid": 2, "args": {"name": "lane"}, "name": "thread_name"}
OUTER = {"ph": "X", "cat": "kernel", "name": "outer", "pid": 1, "tid": 2, "ts": 0, "dur": 10}
INNER = OUTER | {"name": "inner", "ts": 4, "dur": 2}
START = {"ph": "s", "cat": "ac2g", "id": 7, "pid": 1, "tid": 2, "ts": 1}
END = START | {"ph": "f", "ts": 5, "bp": "e"}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([OUTER, INNER, START, END], []),
        ([OUTER, INNER | {"dur": 9}], ["slice_drop_overlapping_complete_event: 1", "1 of 2 slices"]),
        ([OUTER, INNER, START], ["1 of 1 arrows"]),
        ([OUTER, INNER, START, END | {"ts": 0.5}], ["1 of 1 arrows"]),
    ],
    ids=["whole", "crossing slices", "an arrow without an end", "an arrow backwards in time"],
)
def test_what_perfetto_drops_is_noticed(browser, tmp_path, events, expected):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [LANE, *events]}))
    with Perfetto(browser, path) as opened:
        assert lost(opened, events) == expected
