"""python -m torch_npu conformance: the tool itself, and the part of its run that every change has to pass."""

import json
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests.support import ROOT
from tests.support.command_line import called
from torch_npu.testing import compare, coverage, operators, page, report
from torch_npu.testing.exceptions import ACCEPTED, Accepted
from torch_npu.testing.result import Result

PLANTED = str(ROOT / "tests" / "support" / "planted_ops.py")


def section(title: str) -> list[str]:
    """The names in backquotes below a heading of docs/operators.md, those of a group with its name in front."""
    text = (ROOT / "docs" / "operators.md").read_text()
    match = re.search(rf"^###? {title}.*?$(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert match, f"docs/operators.md has no section {title}: run make operators"
    names = []
    for line in match[1].splitlines():
        group = re.match(r"\*\*([\w.]+)\*\* \(", line)
        prefix = f"{group[1]}." if group and group[1] != "torch" else ""
        names += [prefix + name for name in re.findall(r"`([^`]+)`", line)]
    return names


def is_on_the_page(result: dict) -> bool:
    """Does docs/operators.md say that this entry, in this type, runs partly on the CPU, and name the ops that do?"""
    listed = set(section("What runs on the CPU")) | set(section("Without a kernel"))
    rows = dict(
        re.findall(r"^\| `([^`]+)` \| ([\w, ]+) \|", (ROOT / "docs" / "operators.md").read_text(), re.MULTILINE)
    )
    dtypes = rows.get(result["name"], "")
    is_known = result["database"] != "ops" or dtypes == "all" or result["dtype"] in dtypes.split(", ")
    return is_known and {op.removeprefix("aten::") for op in result["fallbacks"]} <= listed


@pytest.mark.parametrize(
    "driver, arguments, least",
    [
        # The template refuses every command, so this proves the fallback; the C model proves the native kernels.
        ("template", ("--dtype", "float32", "--grad", "--db", "ops", "--limit", "2"), 600),
        ("cmodel", ("--dtype", "float32", "--grad"), 850),
        ("cmodel", ("--dtype", "float64,bfloat16,float16,int64,int32,uint8,bool,complex64", "--limit", "2"), 4000),
    ],
    ids=["template", "float32", "others"],
)
def test_what_passes_on_the_cpu_passes_on_npu(module, tmp_path, driver, arguments, least):
    file = tmp_path / "run.json"
    run = module("conformance", *arguments, "--json-file", str(file), timeout=900, TORCH_NPU_DRIVER=driver)
    assert run.status == 0, run.out[-4000:] + run.err[-2000:]
    results = json.loads(file.read_text())["results"]
    assert sum(r["status"] == "passed" for r in results) > least
    if driver == "cmodel":
        assert [r for r in results if r["fallbacks"] and not is_on_the_page(r)] == [], "run: make operators"


def test_a_crash_or_a_hang_costs_one_entry(module, tmp_path):
    file = tmp_path / "run.json"
    options = ("--load", PLANTED, "--op", "planted.*", "--db", "ops", "--jobs", "2", "--timeout", "8")
    run = module("conformance", *options, "--json-file", str(file))
    assert run.status == 1
    found = {r["name"]: r for r in json.loads(file.read_text())["results"]}
    statuses = {name.removeprefix("planted."): r["status"] for name, r in found.items()}
    assert statuses == {
        "segfault": "crashed",
        "hang": "timeout",
        "raise": "raised",
        "wrong": "wrong",
        "break": "passed",  # nothing to break
        "fine": "passed",
    }
    assert found["planted.segfault"]["message"].startswith("sample 1, forward: the process was ended by SIGSEGV")
    assert found["planted.hang"]["message"] == "sample 1, forward: no answer after 8 s"
    assert found["planted.raise"]["message"] == "sample 1, forward: RuntimeError: planted"
    assert "Greatest absolute difference: 1.0" in found["planted.wrong"]["message"]
    assert "crashed  planted.segfault (float32)" in run.out


def test_compiled_entries_are_one_graph_as_on_the_cpu(module, tmp_path):
    file = tmp_path / "run.json"
    options = ("--load", PLANTED, "--op", "planted.(raise|wrong|break|fine)|nonzero", "--db", "compiled")
    run = module("conformance", *options, "--json-file", str(file))
    assert run.status == 1
    found = {r["name"].removeprefix("planted."): r for r in json.loads(file.read_text())["results"]}
    statuses = {"raise": "raised", "wrong": "wrong", "break": "raised", "fine": "passed", "nonzero": "passed"}
    assert {name: r["status"] for name, r in found.items()} == statuses
    assert "graph_break()" in found["break"]["message"]


def test_each_entry_says_how_it_ran(module, tmp_path, cmodel):
    file = tmp_path / "run.json"
    run = module(
        "conformance", "--op", "mul|reshape|linalg.svd|nn.Linear|SGD", "--limit", "2", "--json-file", str(file)
    )
    assert run.status == 0, run.out
    found = {r["name"]: r for r in json.loads(file.read_text())["results"]}
    assert {name: r["how"] for name, r in found.items()} == {
        "mul": "native",
        "reshape": "decomposed",
        "linalg.svd": "fallback",
        "nn.Linear": "decomposed",
        "SGD": "decomposed",
    }
    assert found["mul"]["fallbacks"] == {} and found["linalg.svd"]["fallbacks"].keys() == {"aten::_linalg_svd.U"}


@pytest.mark.parametrize("got, fine", [(0.25, True), (math.nan, True), (0.5, False), (math.inf, False)])
def test_a_number_where_the_cpu_has_nan_must_be_the_right_one(got, fine):
    mine, cpus = torch.tensor([1.0, got]).bfloat16(), torch.tensor([1.0, math.nan]).bfloat16()
    truth = torch.tensor([1.0, 0.25], dtype=torch.float64)
    if fine:
        assert compare.no_worse(mine, cpus, truth, {"rtol": 0.0, "atol": 0.0})
    else:
        with pytest.raises(AssertionError):
            compare.no_worse(mine, cpus, truth, {"rtol": 0.0, "atol": 0.0})


def test_a_wrong_dtype_or_pattern_is_status_2():
    wrong = called("conformance", "--dtype", "float33")
    assert wrong.status == 2 and "expected dtypes out of float32, float64" in wrong.err and "float33" in wrong.err
    nothing = called("conformance", "--op", "no_such_op", "--db", "optimizers")
    assert nothing.status == 2 and "no entry of optimizers matches 'no_such_op' for float32" in nothing.err


def test_accepted_failures_are_few_and_reasoned():
    assert len(ACCEPTED) < 10
    assert all(len(entry.reason) > 20 for entry in ACCEPTED)


def made_run(**facts) -> report.Run:
    results = [
        Result("ops", "add", "float32", how="native", samples=7),
        Result("ops", "add", "int64", "wrong", "native", "sample 1, forward: <off> by one", samples=1),
        Result("ops", "cdist", "float32", how="fallback", fallbacks={"aten::_cdist_forward": 3}, samples=2),
        Result("modules", "nn.Linear", "float32", how="decomposed", samples=3),
    ]
    return report.Run({"torch": "2", "driver": "cmodel", "grad": True, "limit": None, **facts}, results)


def test_an_accepted_failure_does_not_fail_the_run_and_a_stale_one_does():
    run = made_run()
    run.excuse(())
    assert not run.ok and [r.dtype for r in run.failures] == ["int64"]
    run.excuse((Accepted("ops", "add", "int64", "because"),))
    assert run.ok and "accepted add (int64), wrong: because" in report.text(run)
    run.excuse((Accepted("ops", "add", "int64", "because"), Accepted("ops", "add", "float32", "once")))
    assert not run.ok and "stale    add (float32) passes now" in report.text(run)
    part = made_run(limit=2)
    part.excuse((Accepted("ops", "add", "int64", "because"), Accepted("ops", "add", "float32", "once")))
    assert part.ok, "a part of the samples cannot show that an entry is no longer needed"


def test_the_share_without_fallback_counts_ops_in_scope_over_all_dtypes():
    run = made_run()
    assert run.share() == 0.5 and run.share("int64") == 1.0
    run.results.append(Result("ops", "linalg.svd", "float32", how="fallback", fallbacks={"aten::_linalg_svd.U": 1}))
    assert run.share() == 0.5
    assert "falls back: cdist (aten::_cdist_forward)" in report.text(run)


class Page(HTMLParser):
    """Rows, cells and what would be fetched."""

    def __init__(self, text: str):
        super().__init__()
        self.entries, self.outside, self.ids, self.open = [], [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids |= {attributes["id"]} if "id" in attributes else set()
        self.outside += [attributes[a] for a in ("src", "href") if a in attributes]
        if tag == "tr" and attributes.get("class") == "entry":
            self.entries.append({**attributes, "cells": 0})
        if tag == "td" and self.entries:
            self.entries[-1]["cells"] += 1
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_one_file_with_a_row_per_entry():
    text = page.html(made_run())
    found = Page(text)
    assert found.open == [] and found.outside == [] and "http" not in text and "@import" not in text
    assert {"search", "status", "how", "database", "entries", "shown"} <= found.ids
    assert [(e["data-database"], e["data-status"], e["data-how"]) for e in found.entries] == [
        ("ops", "failed passed wrong", "native"),
        ("ops", "passed", "fallback"),
        ("modules", "passed", "decomposed"),
    ]
    assert {e["cells"] for e in found.entries} == {3 + 2 + 2 + 1}, "three, a cell per dtype, two, and the hidden row"
    assert "&lt;off&gt; by one" in text and "<off>" not in text
    assert "aten::_cdist_forward × 3" in text and "prefers-color-scheme: dark" in text


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="needs a browser")
def test_the_page_works_in_a_browser(tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page.html(made_run()))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    done = subprocess.run([*command, "--dump-dom", f"file://{file}#cdist"], capture_output=True, text=True, timeout=60)
    assert '<span id="shown">1 of 3 entries</span>' in done.stdout, done.stderr[-2000:]


def test_a_run_can_be_reported_again(module, tmp_path):
    made_run().save(str(tmp_path / "run.json"))
    files = {kind: tmp_path / f"again.{kind}" for kind in ("html", "markdown")}
    run = module(
        "conformance", "--from", str(tmp_path / "run.json"), *sum(([f"--{k}", str(f)] for k, f in files.items()), [])
    )
    assert run.status == 1 and "wrong    add (int64)" in run.out
    assert "<title>torch_npu conformance</title>" in files["html"].read_text()
    assert "| `cdist` | float32 | `_cdist_forward` |" in files["markdown"].read_text()


@pytest.mark.parametrize("title, kind", [("Registered for npu", "native"), ("Without a kernel", "fallback")])
def test_what_the_operators_page_says_about_kernels_is_true(title, kind):
    listed, table = section(title), operators.dispatcher_table()
    here = set().union(*table.values())  # the page is of the newest torch, and an older one has fewer ops
    assert len(listed) > 20
    assert (set(listed) & here) - set(table[kind]) == set(), "run: make operators"


def test_forms_that_the_operators_page_calls_missing_are_missing():
    assert set(section("Forms that run on the CPU")) - set(operators.partly_native()) == set(), "run: make operators"


def test_ops_that_the_operators_page_calls_native_have_a_kernel():
    listed = set(section("Native"))
    infos = [op for op in op_db if op.full_name in listed]
    assert len(infos) > 100
    assert [op.full_name for op in infos if not coverage.has_own_kernel(coverage.base_names(op.aten_name))] == []
