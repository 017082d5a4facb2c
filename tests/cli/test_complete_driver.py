"""The whole driver that new-driver writes from drivers/complete: each choice of its rooms, and a written project as its
owner builds it. From an installed wheel: tests/cli/test_wheel.py."""

import os
import re
import subprocess
import sys

import pytest

from tests.support import LIBRARIES, ROOT
from torch_npu import new_driver

SUITE = LIBRARIES / "npu-driver-test"


def finished(*command, **variables) -> str:
    environment = os.environ | {name: str(value) for name, value in variables.items()}
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("name", ["complete", "complete_async", "complete_to_c"])
def test_every_choice_of_rooms_has_all_of_the_contract(name, tmp_path):
    library = LIBRARIES / "testing" / f"libnpu_{name}.so"
    said = finished(SUITE, f"{library}:devices=2", "--count", 60, XDG_CACHE_HOME=tmp_path)
    assert " 0 failed, 0 unsupported" in said


def test_sums_and_products_have_the_order_of_the_instruction_set():
    library = LIBRARIES / "testing" / "libnpu_complete.so"
    said = finished(SUITE, f"{library}:devices=2", "--count", 60, "--exact-sums")
    assert " 0 failed, 0 unsupported" in said


def test_programs_become_kernels_that_compute_the_same(tmp_path):
    library = LIBRARIES / "testing" / "libnpu_complete_to_c.so"
    said = finished(SUITE, f"{library}:compile_after=0", "--filter", "MAP:", "--count", 4, XDG_CACHE_HOME=tmp_path)
    assert " 0 failed, 0 unsupported" in said
    kernels = sorted((tmp_path / "npu-kernels").glob("*.so"))
    assert len(kernels) > 10
    assert "void kernel(const walk* w)" in kernels[0].with_suffix(".so.c").read_text()


def test_without_a_compiler_programs_are_interpreted(tmp_path):
    library = LIBRARIES / "testing" / "libnpu_complete_to_c.so"
    variables = {"XDG_CACHE_HOME": tmp_path, "PATH": tmp_path}
    said = finished(SUITE, f"{library}:compile_after=0", "--filter", "MAP: add", "--count", 2, **variables)
    assert "1 passed, 0 failed, 0 unsupported" in said and not list((tmp_path / "npu-kernels").iterdir())


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project with all parts, as new-driver writes it."""
    folder = tmp_path_factory.mktemp("empty") / "mychip"
    new_driver.write("mychip", folder, ROOT / "include" / "npu", new_driver.read_parts("async,to-c"))
    return folder


def make(project, *arguments) -> str:
    variables = {"XDG_CACHE_HOME": project / "cache"}
    return finished(
        "make", "-s", "-j2", "-C", project, f"SUITE={SUITE}", f"PYTHON={sys.executable}", *arguments, **variables
    )


def test_a_written_project_builds_without_a_warning_and_names_itself(project):
    make(project, "CC=cc -Werror")
    said = finished(SUITE, f"{project}/libnpu_mychip.so", "--filter", "properties")
    assert "driver mychip 1.0" in said and "mychip, commands 0xff" in said


def test_a_written_project_survives_a_chip_that_stops_answering(project):
    said = make(project, "test-hang")
    assert "needs device_reset" in said and said.splitlines()[-1] == "copy_to_host: 0"


@pytest.mark.parametrize(
    ("target", "tests"), [("test-address", "--count 5"), ("test-thread", "--count 5 --filter thread")]
)
def test_a_written_project_is_clean_under_sanitizers(project, target, tests):
    assert " 0 failed" in make(project, target, f"ARGUMENTS={tests}")


def test_a_sanitizer_that_finds_something_fails_the_target(project):
    """The suite is not built with the sanitizer: the driver is, and that has to be enough."""
    memory = project / "src" / "device" / "memory.c"
    whole, read = memory.read_text(), "  *free_bytes = device->total - device->used;\n"
    assert read in whole
    past_the_end = read + "  char* small = malloc(1);\n  *free_bytes += 0 * (uint64_t) * (volatile char*)(small + 1);\n"
    memory.write_text(whole.replace(read, past_the_end + "  free(small);\n"))
    try:
        command = ["make", "-s", "-C", str(project), f"SUITE={SUITE}", "test-address", "ARGUMENTS=--filter properties"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    finally:
        memory.write_text(whole)
    assert done.returncode != 0 and "heap-buffer-overflow" in done.stdout + done.stderr


def test_parts_stand_on_the_interpreter_and_unknown_ones_are_refused():
    assert new_driver.read_parts("to-c,async") == ["interpreter", "async", "to-c"]
    assert new_driver.read_parts("interpreter") == ["interpreter"]
    with pytest.raises(ValueError, match="expected parts of interpreter, async, to-c, .* got 'asink'"):
        new_driver.read_parts("asink")


def test_a_written_project_carries_its_pages_and_its_contract(project):
    for page in new_driver.PAGES:
        assert (project / "docs" / page).read_text() == (ROOT / "docs" / page).read_text()
    assert {f.name for f in (project / "include" / "npu").iterdir()} == {
        f.name for f in (ROOT / "include" / "npu").iterdir()
    }
    readme = (project / "README.md").read_text()
    assert not re.search(r"@[A-Z]+@", readme + (project / "Makefile").read_text())
    assert all(f"`{room.name}/`" in readme for room in (project / "src").iterdir() if room.is_dir())
