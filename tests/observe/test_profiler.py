"""torch.profiler with the npu activity: lanes, arrows, device columns; timing events and torch.utils.benchmark."""

import json
import time
from collections import Counter

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

import torch_npu
from tests.support import LIBRARIES, needs_profiler
from torch_npu.bench import qwen2

pytestmark = needs_profiler
BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]


@pytest.fixture
def blocking():
    torch_npu._C.set_blocking(True)
    yield
    torch_npu._C.set_blocking(False)


def exported(profiled: profile, folder) -> list[dict]:
    profiled.export_chrome_trace(str(folder / "trace.json"))
    return json.loads((folder / "trace.json").read_text())["traceEvents"]


def slices(events: list[dict], *categories: str) -> list[dict]:
    return [event for event in events if event.get("ph") == "X" and event.get("cat") in categories]


def is_within(inner: dict, outer: dict, slack: float = 0.002) -> bool:  # the file has three decimals
    end, outer_end = inner["ts"] + inner["dur"], outer["ts"] + outer["dur"]
    return outer["ts"] - slack <= inner["ts"] and end <= outer_end + slack


def check_trace(events: list[dict], span: dict) -> None:
    """Every command has a lane, an arrow from the call of an op that asked for it, and lies in the span."""
    device = slices(events, "kernel", "gpu_memcpy")
    calls = {call["args"]["correlation"]: call for call in slices(events, "privateuse1_runtime")}
    ops = {
        op["args"]["External id"]: op
        for op in slices(events, "cpu_op", "user_annotation")
        if "External id" in op["args"]
    }
    starts = {arrow["id"]: arrow for arrow in events if arrow.get("ph") == "s" and arrow["cat"] == "ac2g"}
    ends = {arrow["id"]: arrow for arrow in events if arrow.get("ph") == "f" and arrow["cat"] == "ac2g"}
    assert len(device) == len(calls) == len(starts) == len(ends) > 0
    last = Counter()
    for work in sorted(device, key=lambda work: work["ts"]):
        number = work["args"]["correlation"]
        call, start, end = calls[number], starts[number], ends[number]
        assert (start["pid"], start["tid"], start["ts"]) == (call["pid"], call["tid"], call["ts"])
        assert (end["pid"], end["tid"], end["ts"]) == (work["pid"], work["tid"], work["ts"])
        assert start["ts"] <= end["ts"] + 0.002
        assert is_within(call, ops[work["args"]["External id"]])
        assert is_within(work, span)
        lane = work["pid"], work["tid"]
        assert work["ts"] >= last[lane] - 0.002, "two commands at once on one stream"
        last[lane] = work["ts"] + work["dur"]


def test_a_lora_step_of_qwen2_has_lanes_arrows_and_nothing_outside(tmp_path, cmodel):
    step = qwen2.lora_step(qwen2.make("0.5b", torch.float32, quick=True), "npu").run
    step()
    torch.npu.synchronize()
    with profile(activities=BOTH) as profiled, record_function("the step"):
        step()
        torch.npu.synchronize()
    events = exported(profiled, tmp_path)
    (span,) = [event for event in slices(events, "user_annotation") if event["name"] == "the step"]
    check_trace(events, span)
    work = slices(events, "kernel")
    assert {event["pid"] for event in work} == {0} and {event["tid"] for event in work} == {0}
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    assert lanes[0, 0] == "stream 0"
    (device_name,) = [e["args"]["name"] for e in events if e.get("name") == "process_name" and e["pid"] == 0]
    assert device_name == "npu:0 (C model)"
    # The backward pass runs on another thread, and its commands are linked there.
    threads = {call["tid"] for call in slices(events, "privateuse1_runtime")}
    assert len(threads) == 2
    products = [event["args"] for event in work if event["name"].endswith("MATMUL")]
    assert products and all(args["flops"] > 0 and args["bytes"] > 0 and "x" in args["shape"] for args in products)


def test_streams_and_devices_have_lanes_of_their_own(tmp_path, two_devices):
    side = torch.npu.Stream()
    with profile(activities=BOTH) as profiled:
        a = torch.ones(64, device="npu:0")
        with torch.npu.stream(side):
            b = torch.ones(64, device="npu:0") * 2
        c = torch.ones(64, device="npu:1")
        torch.npu.synchronize(0)
        torch.npu.synchronize(1)
    lanes = {(event["pid"], event["tid"]) for event in slices(exported(profiled, tmp_path), "kernel")}
    assert lanes == {(0, 0), (0, side.stream_id), (1, 0)}
    assert (a.sum() + b.sum() + c.sum().to("npu:0")).item() == 64 * 4


def test_flops_and_bytes_are_those_of_the_command(tmp_path):
    x, y = torch.randn(32, 48, device="npu"), torch.randn(48, 16, device="npu")
    image, weight = torch.randn(2, 3, 8, 8, device="npu"), torch.randn(5, 3, 3, 3, device="npu")
    torch.npu.synchronize()
    with profile(activities=BOTH) as profiled:
        x @ y
        torch.nn.functional.conv2d(image, weight)
        image.cpu()
    work = {
        event["name"].split()[-1]: event["args"]
        for event in slices(exported(profiled, tmp_path), "kernel", "gpu_memcpy")
    }
    assert work["MATMUL"]["flops"] == 2 * 32 * 48 * 16 and work["MATMUL"]["shape"] == "32x16"
    assert work["MATMUL"]["bytes"] == 4 * (32 * 48 + 48 * 16 + 32 * 16)
    assert work["CONV"]["flops"] == 2 * (2 * 5 * 6 * 6) * 3 * 3 * 3
    assert work["DtoH"]["bytes"] == image.nbytes


def nearest_to_one(step, times: int = 7) -> tuple[float, ...]:
    """The parts that `step` gives for the wall time, of the time when they are nearest to the whole of it.

    Another process that gets the processor between two ops makes the wall time longer and no row, so a loaded machine
    spoils some of the times. Rows that are missing or counted twice spoil all of them: one good time is enough."""
    return min((step() for _ in range(times)), key=lambda parts: max(abs(part - 1) for part in parts))


def test_device_columns_add_up_to_the_wall_time_of_large_commands(blocking, cmodel):
    x = torch.randn(1024, 1024, device="npu")
    x @ x

    def parts() -> tuple[float, float]:
        with profile(activities=BOTH) as profiled:
            begin = time.perf_counter()
            for _ in range(20):
                y = x @ x
            wall = (time.perf_counter() - begin) * 1e6
        averages, cpu = profiled.key_averages(), torch.autograd.DeviceType.CPU
        (mm,) = [row for row in averages if row.key == "aten::mm"]
        assert mm.count == 20 and mm.self_device_time_total > 0
        kernels = sum(row.self_device_time_total for row in averages if row.device_type != cpu)
        assert kernels == pytest.approx(mm.self_device_time_total, rel=1e-6)
        assert "Self NPU" in averages.table() and y.shape == (1024, 1024)
        return kernels / wall, sum(row.self_cpu_time_total for row in averages) / wall

    assert nearest_to_one(parts) == pytest.approx((1, 1), abs=0.05)


def sums_to_wall(step) -> tuple[float, float]:
    """Self times on the host, and on the device, of all rows of key_averages(), as parts of the wall time. Ranges
    do not count: the Python between ops would be in them by definition."""
    with profile(activities=BOTH) as profiled:
        begin = time.perf_counter()
        step()
        torch.npu.synchronize()
        wall = (time.perf_counter() - begin) * 1e6
    rows, cpu = profiled.key_averages(), torch.autograd.DeviceType.CPU
    host = sum(row.self_cpu_time_total for row in rows if row.device_type == cpu and not row.is_user_annotation)
    return host / wall, sum(row.self_device_time_total for row in rows if row.device_type != cpu) / wall


def test_the_sums_of_a_lora_step_are_its_wall_time(cmodel):
    step = qwen2.lora_step(qwen2.make("0.5b", torch.float32, quick=True), "npu", sequences=4, length=128).run
    step()
    asynchronous = sums_to_wall(step)[0]
    torch_npu._C.set_blocking(True)
    try:
        host, device = nearest_to_one(lambda: sums_to_wall(step))
    finally:
        torch_npu._C.set_blocking(False)
    assert host == pytest.approx(1, abs=0.05) and device == pytest.approx(1, abs=0.05) and device < host
    assert asynchronous < 0.8  # the host only asks: it is blocking that makes its sums the wall time


def test_a_command_of_compiled_code_belongs_to_the_range_around_it(tmp_path):
    @torch.compile(backend="inductor")
    def f(x):
        return (x.sin() * 2 + 1).relu()

    x = torch.randn(1000, device="npu")
    f(x)
    with profile(activities=BOTH) as profiled:
        f(x)
        torch.npu.synchronize()
    events = exported(profiled, tmp_path)
    (work,) = slices(events, "kernel")
    owner = {event["args"].get("External id"): event["name"] for event in slices(events, "cpu_op", "user_annotation")}
    assert work["args"]["External id"] in owner


def test_memory_is_in_the_trace(tmp_path):
    with profile(activities=BOTH, profile_memory=True) as profiled:
        x = torch.empty(1 << 20, dtype=torch.uint8, device="npu")
    changes = [event["args"] for event in exported(profiled, tmp_path) if event.get("name") == "[memory]"]
    assert any(change["Bytes"] == 1 << 20 and change["Device Type"] == 20 for change in changes)
    (row,) = [row for row in profiled.key_averages() if row.key == "aten::empty"]
    assert row.self_device_memory_usage == 1 << 20 and x.numel() == 1 << 20


def test_a_profile_of_the_host_alone_watches_no_driver(tmp_path):
    x = torch.ones(16, device="npu")
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        x + 1
    assert slices(exported(profiled, tmp_path), "kernel", "privateuse1_runtime") == []


def test_profiles_follow_each_other_and_a_schedule(tmp_path):
    x = torch.ones(16, device="npu")
    counts = []
    with profile(
        activities=BOTH,
        schedule=torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=2),
        on_trace_ready=lambda p: counts.append(sum(e.device_type != torch.autograd.DeviceType.CPU for e in p.events())),
    ) as profiled:
        for _ in range(8):
            x + 1
            profiled.step()
    assert counts == [2, 2]


def test_events_and_benchmark_measure_time(cmodel):
    x = torch.randn(512, 512, device="npu")
    start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
    start.record()
    begin = time.perf_counter()
    for _ in range(20):
        x @ x
    end.record()
    end.synchronize()
    wall = (time.perf_counter() - begin) * 1e3
    assert 0.3 * wall < start.elapsed_time(end) < 1.1 * wall
    from torch.utils import benchmark

    measured = benchmark.Timer("x @ x", globals={"x": x}).timeit(20)
    assert measured.median == pytest.approx(wall / 20 / 1e3, rel=2)


SIMULATED = """
import json, sys, torch, torch_npu
from torch.profiler import ProfilerActivity, profile
x = torch.randn(32, 32).to("npu")
start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
start.record(); x @ x; end.record(); torch.npu.synchronize()
cycles = start.elapsed_time(end) * 1e3 * torch.npu.get_device_properties().clock_mhz
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiled:
    x @ x
profiled.export_chrome_trace(sys.argv[1])
(work,) = [e for e in json.load(open(sys.argv[1]))["traceEvents"] if e.get("cat") == "kernel"]
print(round(cycles), work["args"]["cycles"])
"""


@pytest.mark.skipif(not (LIBRARIES / "libnpu_rtl.so").exists(), reason="the rtl driver was not built")
def test_the_work_of_a_simulated_device_has_its_cycles(python, tmp_path):
    by_events, by_profile = python(SIMULATED, str(tmp_path / "trace.json"), TORCH_NPU_DRIVER="rtl").lines()[-1].split()
    assert int(by_events) == int(by_profile) > 1000


def test_the_profiler_sees_device_memory():
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.empty(1 << 20, device="npu", dtype=torch.uint8)
    changes = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    npu = [e.nbytes() for e in changes if e.device_type() == torch._C._autograd.DeviceType.PrivateUse1]
    assert sorted(npu) == [-(1 << 20), 1 << 20]


def test_the_event_profiler_times_ops_on_the_device(cmodel):
    x = torch.randn(256, 256, device="npu")
    with torch.autograd.profiler.profile(use_device="npu") as profile:
        x @ x
    (mm,) = [e for e in profile.key_averages() if e.key == "aten::mm"]
    assert 0 < mm.device_time_total < 1e6
