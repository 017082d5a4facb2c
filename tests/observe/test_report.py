"""torch_npu.report: what it counts, what it advises, and its page in a real browser without a network."""

import json

import pytest
import torch
from torch import nn

import torch_npu
from tests.support import LIBRARIES, ROOT, needs_profiler
from tests.support.browser import Browser
from torch_npu.bench import networks, qwen2
from torch_npu.report import advice, memory, shares, timeline
from torch_npu.report import facts as facts_module
from torch_npu.report.recording import Command, Op, Recording

pytestmark = needs_profiler
LIMIT = 2_000_000  # bytes of a page


class WithFallback(nn.Module):
    """A product on the device, and a decomposition that only the CPU has."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, x):
        y = torch.relu(self.layer(x))
        return torch.linalg.svdvals(y).sum() + y.sum()


@pytest.fixture(scope="module")
def found():
    return torch_npu.report(WithFallback(), torch.randn(16, 32), steps=2, warmup=1, title="<b>A</b> model </script>")


@pytest.fixture(scope="module")
def browser():
    with Browser() as one:
        yield one


def test_a_fallback_is_counted_with_its_transfers_and_its_line(found):
    (row,) = found.facts["fallbacks"]
    assert row["op"] == "aten::_linalg_svd.U" and row["calls"] == 2 == found.facts["counts"]["fallbacks"]
    assert found.facts["counts"]["counted"] == {"aten::_linalg_svd.U": 2}
    # Each call writes U, S and V, for the gradient; it reads the matrix and, as they are given, the three.
    written = 4 * (16 * 16 + 16 + 16 * 32)
    assert row["to_device_bytes"] == 2 * written and row["to_host_bytes"] == 2 * (4 * 16 * 32 + written)
    assert 0 < row["saved_us"] <= row["us"] and 0 < row["copies_us"] < row["us"]
    assert row["lines"][0]["code"] == "return torch.linalg.svdvals(y).sum() + y.sum()"
    assert "implementing aten::_linalg_svd.U next would save up to" in found.headline
    (first, *_) = [entry for entry in found.facts["advice"] if entry["kind"] == "fallback"]
    assert first["do"] == "Implement aten::_linalg_svd.U next" and first["us"] == row["saved_us"]


def test_shares_are_those_of_the_run(found):
    parts = found.facts["shares"]
    assert parts["flops"] == {"device": 2 * 2 * 16 * 32 * 32, "fallback": 0}
    assert parts["ops"]["fallback"] == 2 and parts["ops"]["device"] >= 2 * 4
    assert sum(parts["time"].values()) == pytest.approx(found.facts["wall_us"], rel=1e-3)
    fallback = next(row for row in found.facts["ops"] if row["where"] == "fallback")
    assert fallback["bytes"] == parts["bytes"]["fallback"] > 0
    products = [row for row in found.facts["commands"] if row["kind"] == "MATMUL"]
    assert [row["flops"] for row in products] == [2 * 16 * 32 * 32] and products[0]["count"] == 2
    assert products[0]["lines"][0]["code"] == "y = torch.relu(self.layer(x))"


def test_the_backward_pass_has_the_lines_of_the_forward():
    def step(model, x):
        model(x).square().mean().backward()

    made = torch_npu.report(nn.Linear(64, 64), torch.randn(8, 64), step, steps=1)
    ours = [row for row in made.facts["commands"] if row["kind"] == "MATMUL"]
    assert len(ours) >= 2  # the product, and the gradient of the weight
    assert {line["code"] for row in ours for line in row["lines"]} == {"model(x).square().mean().backward()"}
    assert any(line["in"].endswith("backward") for row in ours for line in row["lines"])


def op(name, start, end, thread=1, is_range=False):
    return Op(0, name, start, end, thread, is_range=is_range)


def command(start, end, fallback=None, is_copy=False, **more):
    facts = {
        "op": "aten::mm",
        "kind": "MATMUL",
        "device": 0,
        "stream": 0,
        "bytes": 8,
        "flops": 0,
        "shape": "",
        "cycles": 0,
    }
    return Command(start=start, end=end, is_copy=is_copy, owner=None, fallback=fallback, **(facts | more))


def test_every_moment_counts_once():
    slow, other = op("fallback a", 20, 60, is_range=True), op("fallback b", 50, 70, thread=2, is_range=True)
    run = Recording(torch.device("npu:0"), 0.0, 100.0, fallbacks=[slow, other])
    run.commands = [command(5, 30), command(20, 22, slow, is_copy=True), command(80, 90, is_copy=True)]
    spent, saved = shares.split(run)
    # The device was busy until 30; then the fallbacks, 50 to 60 of which both had; a copy; and the host for the rest.
    assert spent == {"device": 25.0, "fallback": 40.0, "transfer": 10.0, "host": 25.0}
    assert saved == {"fallback a": 25.0, "fallback b": 15.0}


def test_a_computed_clock_is_not_added_to_the_host():
    slow = op("fallback a", 0, 40, is_range=True)
    run = Recording(torch.device("npu:0"), 0.0, 100.0, fallbacks=[slow], simulated=True)
    run.commands = [command(0, 1000), command(0, 7, slow, is_copy=True)]
    assert shares.split(run)[0] == {"device": 1000, "fallback": 40, "transfer": 0.0, "host": 0.0}


def test_long_runs_stay_small_and_keep_their_peaks():
    run = Recording(torch.device("npu:0"), 0.0, 1e6)
    run.commands = [command(10.0 * k, 10.0 * k + 9) for k in range(100_000)]
    lanes = timeline.lanes(run)
    (lane,) = lanes["lanes"]
    slices = list(zip(*[iter(lane["slices"])] * 5))
    assert len(slices) <= timeline.SLICES and sum(row[4] for row in slices) == 100_000
    assert lane["slices"][0] == 0 and slices[-1][0] + slices[-1][1] == round(10 * run.commands[-1].end)
    assert lanes["busy"] == [0.9] * timeline.STRETCHES, "gaps inside of merged slices count as gaps"
    level, points = 0, []
    for k in range(50_000):
        level = 10**9 if k == 31_415 else k % 100
        points.append((float(k), level, level))
    thinned = memory.thin(points)
    assert len(thinned) <= memory.POINTS and max(p[1] for p in thinned) == 10**9 and thinned == sorted(thinned)


def test_percent_never_says_all_where_something_is_missing():
    assert [advice.percent(v) for v in (0, 0.0001, 0.5, 0.9996, 1)] == ["0 %", "0.1 %", "50 %", "99.9 %", "100 %"]


def resnet(path):
    step = networks.resnet18("npu", quick=True)
    return torch_npu.report(step, (), title="ResNet-18 training", html=path, warmup=1, steps=1)


def generation(path):
    def generate(model, tokens):
        return model.generate(tokens, max_new_tokens=12, min_new_tokens=12, do_sample=False)

    model = qwen2.make("tiny", torch.float32, quick=True)
    tokens = qwen2.tokens_of(model, 1, 16, "cpu")
    return torch_npu.report(model, tokens, generate, title="Qwen2 generation", html=path, warmup=1, steps=1)


def pixels_drawn(page) -> int:
    """Pixels of the timeline that have a colour of a slice."""
    return page.evaluate("""(() => {
        const canvas = document.querySelector("#timeline canvas"), copy = new OffscreenCanvas(canvas.width, canvas.height);
        const c = copy.getContext("2d", {willReadFrequently: true});
        c.drawImage(canvas, 0, 0);
        const data = c.getImageData(0, 0, canvas.width, canvas.height).data;
        let count = 0;
        for (let i = 0; i < data.length; i += 4)
            if (data[i + 3] === 255 && Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]) > 30) count++;
        return count;
    })()""")  # noqa: E501


def column(page, table: str, number: int) -> list[str]:
    return page.evaluate(
        f"[...document.querySelectorAll('{table} tbody td:nth-child({number})')].map((n) => n.innerText.trim())"
    )


@pytest.mark.parametrize("make", [resnet, generation])
def test_the_page_in_a_browser_without_a_network(browser, tmp_path, make):
    file = tmp_path / "report.html"
    made = make(file)
    assert made.facts["fallbacks"] == [] and file.stat().st_size < LIMIT
    page = browser.open(file)
    page.wait("document.documentElement.dataset.ready === 'yes'")
    assert page.requests == [file.as_uri()], "the page asked for something else"
    assert page.evaluate("document.querySelector('h1').innerText").replace("\xa0", " ") == made.headline
    for width, scheme in ((1280, "light"), (1280, "dark"), (390, "light")):
        page.look(width, scheme=scheme)
        # Charts: a dot for every kind of command, both lines of memory, coloured slices; nothing wider than the page.
        circles = page.evaluate(
            "[...document.querySelectorAll('#roofline svg')].map((s) => s.querySelectorAll('circle').length)"
        )
        products = sum(row["flops"] > 0 for row in made.facts["commands"])
        assert circles == [products, sum(row["bytes"] > 0 for row in made.facts["commands"])] and products > 3
        lengths = page.evaluate(
            "[...document.querySelectorAll('#roofline path, #memory path')].map((p) => p.getTotalLength())"
        )
        assert len(lengths) == 5 and min(lengths) > 100
        assert pixels_drawn(page) > 500
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(251, 250, 247)"
    page.look(1280, scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 28)"
    page.click("header button")  # the other colours, whatever the system prefers
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(251, 250, 247)"
    # Sorting: by calls with the mouse, both ways; by name with the keyboard.
    for wanted in ("descending", "ascending"):
        page.click("#ops th:nth-child(4) button")
        calls = [int(text.replace(",", "")) for text in column(page, "#ops", 4)]
        assert calls == sorted(calls, reverse=wanted == "descending") and len(set(calls)) > 2
        assert page.evaluate("document.querySelector('#ops th:nth-child(4)').getAttribute('aria-sort')") == wanted
    page.evaluate("document.querySelector('#ops th button').focus()")
    page.press("Enter")
    names = column(page, "#ops", 1)
    assert names == sorted(names, key=str.lower) and names[0] != names[-1]
    # The search keeps what it finds, hovering a dot and the keys of the timeline say and move something.
    page.evaluate(
        "const i = document.querySelector('#ops input'); i.value = 'matmul'; i.dispatchEvent(new Event('input'))"
    )
    assert set(column(page, "#ops", 3)) == {"MATMUL"}
    page.evaluate("document.querySelector('#roofline circle').focus()")
    assert "GFLOP/s" in page.evaluate("document.getElementById('tip').innerText")
    page.evaluate("document.activeElement.blur()")
    assert page.evaluate("document.getElementById('tip').hidden")
    page.hover("#memory svg")
    assert "allocated" in page.evaluate("document.getElementById('tip').innerText")
    before = page.evaluate("document.querySelector('#timeline canvas').toDataURL()")
    page.evaluate("document.querySelector('#timeline canvas').focus()")
    page.press("+")
    assert page.evaluate("document.querySelector('#timeline canvas').toDataURL()") != before
    assert page.errors == []


def test_names_with_markup_are_text_on_the_page(browser, found, tmp_path):
    found.save(tmp_path / "report.html")
    page = browser.open(tmp_path / "report.html")
    page.wait("document.documentElement.dataset.ready === 'yes'")
    assert page.evaluate("document.querySelector('header .title').innerText") == "<b>A</b> model </script>"
    assert column(page, "#fallbacks", 1) == ["aten::_linalg_svd.U"] and page.errors == []


def test_the_browser_test_would_notice(browser, tmp_path):
    """An error of the console, a request and a chart that is not drawn are seen."""
    file = tmp_path / "broken.html"
    file.write_text("<img src='https://example.com/a.png'><script>console.error('planted'); nothing()</script>")
    page = browser.open(file)
    assert any("planted" in text for text in page.errors) and any("nothing is not defined" in e for e in page.errors)
    assert "https://example.com/a.png" in page.requests


SCRIPT = """
import sys, torch
from torch.profiler import record_function
print("said by the script", sys.argv[1:])
x = torch.randn(32, 32).npu()
for _ in range(3):
    with record_function("step"):
        y = (x @ x).relu()
torch.fft.rfft(y)
"""


def test_a_script_is_reported(module, tmp_path):
    (tmp_path / "model.py").write_text(SCRIPT)
    script, page = str(tmp_path / "model.py"), tmp_path / "out.html"
    result = module("report", script, "--html", str(page), "--", "--html", "more")
    assert result.status == 0 and "said by the script ['--html', 'more']" in result.out, result.err
    assert "implementing aten::_fft_r2c next" in result.out and f"wrote {page}" in result.out
    assert page.read_text().startswith("<!doctype html>")
    result = module("report", "--range", "step", "--json", script)
    facts = json.loads(result.out)
    assert facts["steps"] == 3 and facts["fallbacks"] == [] and "said by the script" in result.err
    assert {row["op"] for row in facts["ops"]} == {"aten::mm", "aten::relu"}


def test_a_range_that_is_not_there_is_refused():
    run = Recording(torch.device("npu:0"), 0.0, 100.0, ops=[op("step", 0, 9, is_range=True)])
    with pytest.raises(ValueError, match=r"expected a range of the script \(step\), got 'stop'"):
        run.keep_range("stop")


def test_a_driver_without_commands_is_all_fallbacks(browser, tmp_path):
    device = torch_npu.add_driver("template")[0]
    file = tmp_path / "report.html"
    made = torch_npu.report(networks.lenet(), torch.randn(2, 1, 28, 28), device=device, steps=1, html=file)
    assert made.headline.startswith("0 % of the time ran on the device; implementing aten::")
    found = {row["op"]: row["calls"] for row in made.facts["fallbacks"]}
    assert found == made.facts["counts"]["counted"] and found["aten::convolution"] == 2 and found["aten::addmm"] == 3
    parts = made.facts["shares"]
    assert parts["ops"] == {"device": 0, "fallback": 11} and parts["bytes"]["device"] == 0
    # PyTorch's own count: two convolutions, three linear layers.
    products = 28 * 28 * 6 * 25 + 10 * 10 * 16 * 6 * 25 + 400 * 120 + 120 * 84 + 84 * 10
    assert parts["flops"] == {"device": 0, "fallback": 2 * 2 * products}
    page = browser.open(file)
    page.wait("document.documentElement.dataset.ready === 'yes'")
    assert len(column(page, "#fallbacks", 1)) == len(found) and page.errors == []


def test_a_run_without_the_device_says_so(browser, tmp_path):
    made = torch_npu.report(lambda: torch.ones(3) + 1, (), steps=1, html=tmp_path / "report.html")
    assert made.headline == "Nothing ran on the device." and made.facts["advice"] == []
    page = browser.open(tmp_path / "report.html")
    page.wait("document.documentElement.dataset.ready === 'yes'")
    assert page.errors == []


def test_the_roof_is_measured_where_nothing_announces_it(found, cmodel):
    peak = found.facts["peak"]
    assert 1e9 < peak["flops"] < 1e14 and 1e8 < peak["bandwidth"] < 1e13 and "measured here" in peak["source"]
    assert not found.facts["simulated"]


def test_the_roof_of_a_chip_is_that_of_its_file():
    device = torch_npu.add_driver(f"cmodel:chip=[{ROOT / 'examples/chip.toml'}]")[0]
    made = torch_npu.report(lambda x: x @ x, torch.randn(16, 16), device=device, steps=1, warmup=0)
    # 32 x 32 multipliers at 800 MHz, six products of parts for one of float32.
    assert made.facts["peak"]["flops"] == pytest.approx(2 * 32 * 32 * 800e6 / 6)
    assert made.facts["peak"]["bandwidth"] == 51.2e9 and "chip.toml" in made.facts["peak"]["source"]
    assert made.facts["simulated"] and made.facts["shares"]["time"]["host"] == 0


@pytest.mark.skipif(not (LIBRARIES / "libnpu_rtl.so").exists(), reason="the rtl driver was not built")
def test_the_roof_of_the_rtl_is_announced():
    device = torch_npu.add_driver("rtl")[0]
    made = torch_npu.report(lambda x: x @ x, torch.randn(16, 16), device=device, steps=1, warmup=0)
    assert made.facts["peak"]["flops"] == 2 * 16 * 16 * 200e6 and "announced" in made.facts["peak"]["source"]
    (row,) = made.facts["commands"]
    assert row["cycles"] > 100 and row["us"] == pytest.approx(row["cycles"] / 200, rel=0.01)


OWN_PROFILERS = """
import os, torch
from torch.profiler import profile, schedule
x = torch.ones(32, 32).npu()
with profile() as p:
    y = x + 1
p.export_chrome_trace("trace.json")
with torch.autograd.profiler.profile() as q:
    y = x * 2
print("events", len(p.events()), len(q.key_averages()))
with profile(schedule=schedule(wait=0, warmup=1, active=1), on_trace_ready=lambda p: p.events()) as p:
    for _ in range(3):
        y = x.sin()
        p.step()
torch.npu.memory._record_memory_history(None)
os.mkdir("elsewhere")
os.chdir("elsewhere")
raise SystemExit(3)
"""


def test_what_the_script_does_to_the_process_spoils_no_report(module, tmp_path):
    (tmp_path / "model.py").write_text(OWN_PROFILERS)
    result = module("report", "model.py", "--html", "page.html", "--json-file", "facts.json", folder=tmp_path)
    assert result.status == 1 and "events 0 0" in result.out and "(exit status 3)" in result.out, result.err
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert {row["op"] for row in facts["ops"]} >= {"aten::add", "aten::mul", "aten::sin"}
    profiler, history = facts["notes"]
    assert "own profiler was kept off" in profiler and "_record_memory_history itself" in history
    assert profiler in result.out and profiler in (tmp_path / "page.html").read_text()
    assert facts["script_status"] == 3


def test_a_memory_history_of_the_user_goes_on():
    history = torch.npu.memory
    history._record_memory_history(context=None, max_entries=1000, clear_history=True)
    try:
        kept = torch.ones(1000, device="npu")
        made = torch_npu.report(lambda x: x + 1, torch.ones(8), steps=1, warmup=0)
        assert history._history_options["max_entries"] == 1000 and made.facts["notes"] == []
        assert made.facts["memory"]["allocations"] == 1
        events = [e for e in history._snapshot()["device_traces"][0] if e["action"] == "alloc"]
        assert events[0]["addr"] == kept.data_ptr() and len(events) >= 2
    finally:
        history._record_memory_history(None)


def test_a_small_memory_has_a_roof(module, tmp_path):
    text = "import torch\nx = torch.ones(6 << 18).npu()\ny = torch.ones(64, 64).npu()\ny @ y\n"
    (tmp_path / "model.py").write_text(text)
    result = module("report", "--json", str(tmp_path / "model.py"), TORCH_NPU_DRIVER="cmodel:memory=8M")
    facts = json.loads(result.out)
    assert result.status == 0 and facts["peak"]["flops"] > 0 and facts["peak"]["bandwidth"] > 0


def test_commands_without_a_roof_are_counted():
    rows = facts_module._commands([command(0, 5, flops=10)], {"flops": 0.0, "bandwidth": 0.0}, 5.0)
    assert rows[0]["of_roof"] == 0 and rows[0]["us"] == 5


def test_one_disturbed_command_is_nothing_to_tune():
    lengths = [10, 10, 5000, 10, 10]
    commands = [command(0, length, bytes=900) for length in lengths]
    (row,) = facts_module._commands(commands, {"flops": 1e9, "bandwidth": 1e8}, sum(lengths))
    assert row["us"] == sum(lengths) and row["median_us"] == 10 and row["of_roof"] == 0.9
    assert advice._below_the_roof([row]) == []


def test_the_headline_names_the_first_advice():
    entry = {"kind": "device", "what": "aten::mm MATMUL", "share": 0.42}
    facts = {
        "shares": {"time": {"device": 90.0, "host": 1.0}},
        "total_us": 100.0,
        "counts": {"commands": 3},
        "simulated": False,
        "fallbacks": [{"op": "aten::eigvals", "saved_share": 0.02}],
        "advice": [entry],
    }
    start = "90 % of the time ran on the device"
    rest = "tuning aten::mm MATMUL would save up to 42 %"
    assert advice.headline(facts) == f"{start}; {rest}; implementing aten::eigvals next would save up to 2 %."
    assert advice.headline(facts | {"fallbacks": []}) == f"{start} and nothing fell back; {rest}."


def test_a_profiler_that_is_on_is_left_alone():
    with torch.profiler.profile() as p:
        with pytest.raises(RuntimeError, match="expected no torch.profiler to be on"):
            torch_npu.report(lambda x: x + 1, torch.ones(8), steps=1, warmup=1)
    assert "aten::add" in {row.key for row in p.key_averages()}
