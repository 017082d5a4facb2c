"""A driver that cannot be used: import torch works, the first use says why, and another driver can be chosen then."""

import os
import subprocess

from tests.support import ROOT


def first_uses(python, drivers: list[str]) -> list[list[str]]:
    """In one process, for one driver after the other: what is said of devices, and how the first allocation fails."""
    code = """
        import os, sys, torch
        for driver in sys.argv[1:]:
            os.environ["TORCH_NPU_DRIVER"] = driver
            print(torch.ones(2).sum().item(), torch.npu.is_available(), torch.npu.device_count())
            try:
                torch.ones(2, device="npu")
            except Exception as error:
                print(f"{type(error).__name__}: {error}".splitlines()[0])
        os.environ["TORCH_NPU_DRIVER"] = "template"
        print(torch.npu.device_count(), torch.zeros(2, device="npu").cpu().tolist())
    """
    *lines, last = python(code, *drivers, TORCH_NPU_DRIVER=None, TORCH_NPU_FALLBACK="quiet").lines()
    assert last == "1 [0.0, 0.0]"
    return [lines[i : i + 2] for i in range(0, len(lines), 2)]


def test_a_driver_that_cannot_be_used_says_why(python, broken_driver, tmp_path):
    text = tmp_path / "text.so"
    text.write_text("hello")
    sentences = {
        "nonsense": ['driver "nonsense"', "cmodel", "template"],
        "cmodel,nonsense": ['"nonsense"'],
        "/no/such/driver.so": ["/no/such/driver.so"],
        str(text): [str(text)],
        "cmodel:nonsense=1": ["nonsense=1"],
        broken_driver("abi99"): ["contract version", "rebuild it"],
        broken_driver("nosymbol"): ["does not export npu_driver_get"],
        broken_driver("noopen"): ["could not be started", "/dev/mychip0"],
    }
    for said, words in zip(first_uses(python, list(sentences)), sentences.values(), strict=True):
        assert said[0] == "2.0 False 0" and said[1].startswith("RuntimeError: ")
        assert all(word in said[1] for word in words), said


# A table with one thing wrong; everything before that thing works.
WRONG_TABLE = """
#include "npu/runtime.h"
static const char* text(void) { return "the bus is on fire"; }
static npu_status start(const char* o, npu_instance** i) { (void)o; *i = (npu_instance*)1; return NPU_OK; }
static void stop(npu_instance* i) { (void)i; }
static npu_status count(npu_instance* i, uint32_t* n) { (void)i; (void)n; return NPU_ERROR_INTERNAL; }
static void any(void) {}
NPU_EXPORT const npu_driver* npu_driver_get(void) {
  static npu_driver d;
  void** slot = (void**)&d.error_text;
  for (; slot <= (void**)&d.submit; ++slot) *slot = (void*)any;
  d.abi_major = NPU_ABI_MAJOR; d.struct_size = sizeof d; d.error_text = text; d.open = start; d.close = stop;
  d.device_count = count;
  CHANGE;
  return &d;
}
"""


WRONG = {
    "d.struct_size = 100": "has a table of 100 bytes, expected at least",
    "d.copy_to_host = 0": "lacks the function copy_to_host, which the contract requires",
    "return 0": "returned no table from npu_driver_get",
    "": "could not count its devices: the bus is on fire",
}


def test_a_wrong_table_is_refused_with_a_sentence(python, tmp_path):
    libraries = [tmp_path / f"libwrong{number}.so" for number in range(len(WRONG))]
    for library, change in zip(libraries, WRONG, strict=True):
        source = library.with_suffix(".c")
        source.write_text(WRONG_TABLE.replace("CHANGE", change))
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, "-shared", "-fPIC", f"-I{ROOT}/include", source, "-o", library], check=True)
    said = first_uses(python, list(map(str, libraries)))
    for (devices, error), library, sentence in zip(said, libraries, WRONG.values(), strict=True):
        assert devices == "2.0 False 0"
        assert error.startswith("RuntimeError") and sentence in error and str(library) in error
