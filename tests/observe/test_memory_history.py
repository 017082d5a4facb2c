"""torch.npu.memory's history: PyTorch's format and viewer, and out-of-memory messages that name the culprit."""

import pickle

import pytest
import torch
from torch.cuda import _memory_viz

import torch_npu  # noqa: F401

memory = torch.npu.memory


@pytest.fixture
def history():
    torch.npu.synchronize()
    torch.npu.empty_cache()
    memory._record_memory_history(clear_history=True)
    yield
    memory._record_memory_history(None)


def make_large() -> torch.Tensor:
    return torch.empty(3 << 20, dtype=torch.uint8, device="npu")


def events(size: int) -> list[dict]:
    return [event for event in memory._snapshot()["device_traces"][0] if event["size"] == size]


def names(event: dict) -> list[str]:
    return [frame["name"] for frame in event["frames"]]


def test_an_allocation_and_its_end_are_events_with_the_lines_that_asked(history):
    kept = make_large()
    address = kept.data_ptr()
    del kept
    made, requested, completed = events(3 << 20)
    assert [made["action"], requested["action"], completed["action"]] == ["alloc", "free_requested", "free_completed"]
    assert {made["addr"], requested["addr"], completed["addr"]} == {address}
    assert made["time_us"] <= requested["time_us"] <= completed["time_us"]
    assert "make_large" in names(made) and "make_large" not in names(requested)
    frame = next(frame for frame in made["frames"] if frame["name"] == "make_large")
    assert (
        frame["filename"] == __file__ and "torch.empty(3 << 20" in open(__file__).read().splitlines()[frame["line"] - 1]
    )


def test_memory_that_another_stream_uses_is_freed_when_that_stream_has_passed(history, cmodel):
    x = torch.ones(3 << 18, device="npu")
    stream = torch.npu.Stream()
    stream.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(stream):
        x.record_stream(stream)
        y = x * 2
    del x
    stream.synchronize()
    torch.npu.empty_cache()
    freed = [event["action"] for event in events(3 << 20) if event["action"] != "alloc"]
    assert freed == ["free_requested", "free_completed"]
    assert y[0].item() == 2


def test_segments_come_from_the_driver_and_go_back(history):
    kept = torch.empty(64 << 20, dtype=torch.uint8, device="npu")
    del kept
    torch.npu.empty_cache()
    actions = [event["action"] for event in events(64 << 20)]
    assert actions == ["segment_alloc", "alloc", "free_requested", "free_completed", "segment_free"]


def test_live_blocks_of_a_snapshot_have_frames_and_others_have_none(history):
    kept = make_large()
    blocks = [block for segment in memory._snapshot()["segments"] for block in segment["blocks"]]
    (mine,) = [block for block in blocks if block["address"] == kept.data_ptr()]
    assert mine["state"] == "active_allocated" and "make_large" in names(mine)
    assert all(not block["frames"] for block in blocks if block["state"] == "inactive")


def test_pytorchs_viewer_opens_the_file(history, tmp_path):
    model = torch.nn.Linear(256, 256).to("npu")
    model(torch.randn(64, 256, device="npu")).sum().backward()
    memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    with open(tmp_path / "snapshot.pickle", "rb") as file:
        snapshot = pickle.load(file)
    for flamegraph in (_memory_viz.memory, _memory_viz.segments):  # what makes the picture would be downloaded
        assert "test_pytorchs_viewer_opens_the_file" in flamegraph(snapshot, lambda lines: lines)
    assert "segment" in _memory_viz.segsum(snapshot)
    assert "free completed" in _memory_viz.trace(snapshot)
    for plot in (_memory_viz.trace_plot, _memory_viz.segment_plot):
        page = plot(snapshot)
        assert page.lstrip().startswith("<!DOCTYPE html>") and len(page) > 2000


def test_the_oldest_events_go_first_and_actions_can_be_left_out():
    memory._record_memory_history(max_entries=4, skip_actions=["free_requested"], clear_history=True)
    try:
        for _ in range(8):
            make_large()
        actions = [event["action"] for event in memory._snapshot()["device_traces"][0]]
    finally:
        memory._record_memory_history(None)
    assert actions == ["alloc", "free_completed"] * 2
    assert memory._snapshot()["device_traces"][0] == []


def test_state_alone_keeps_what_is_live_and_no_events():
    memory._record_memory_history("state", clear_history=True)
    try:
        kept = make_large()
        snapshot = memory._snapshot()
    finally:
        memory._record_memory_history(None)
    assert snapshot["device_traces"][0] == []
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    assert any(block["address"] == kept.data_ptr() and block["frames"] for block in blocks)


@pytest.mark.parametrize(
    "arguments", [{"enabled": "yes"}, {"context": "most"}, {"stacks": "c++"}, {"skip_actions": ["x"]}]
)
def test_arguments_are_checked(arguments):
    with pytest.raises(ValueError, match="expected"):
        memory._record_memory_history(**arguments)


OUT_OF_MEMORY = """
import torch, torch_npu
def weights(): return torch.empty(40 << 20, dtype=torch.uint8, device="npu")
def activations(): return torch.empty(16 << 20, dtype=torch.uint8, device="npu")
if {on}: torch.npu.memory._record_memory_history()
kept = [weights(), activations()]
try:
    torch.empty(64 << 20, dtype=torch.uint8, device="npu")
except torch.OutOfMemoryError as error:
    print(error)
    events = torch.npu.memory._snapshot()["device_traces"][0]
    print([(event["action"], event["size"]) for event in events if event["action"] == "oom"])
"""


def test_an_out_of_memory_error_lists_the_largest_tensors_and_their_makers(python):
    lines = python(OUT_OF_MEMORY.replace("{on}", "True"), TORCH_NPU_DRIVER="cmodel:memory=100M").lines()
    assert "is out of memory: tried to allocate 64.00 MiB" in lines[0]
    assert lines[1:3] == [
        "The largest tensors on the device, and who made them:",
        "  40.00 MiB by <string>:3 (weights)",
    ]
    assert lines[3] == "  16.00 MiB by <string>:4 (activations)"
    assert lines[-1] == "[('oom', 67108864)]"


def test_without_history_the_error_says_how_to_get_one(python):
    lines = python(OUT_OF_MEMORY.replace("{on}", "False"), TORCH_NPU_DRIVER="cmodel:memory=100M").lines()
    assert "torch.npu.memory._record_memory_history()" in lines[0] and lines[1] == "[]"
