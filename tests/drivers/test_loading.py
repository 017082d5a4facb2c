"""A library that is no driver, or a wrong one, is refused with a sentence, and another can be chosen."""

import os
import subprocess

import pytest

from tests.support import ROOT


def first_use(python, **environment):
    """Whether a device is said to be there, and how the first allocation fails."""
    code = """
        import torch
        print(torch.npu.is_available())
        try:
            torch.empty(1, device="npu")
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
    """
    return python(code, **environment).lines()[:2]


def test_another_driver_can_be_chosen_after_a_failure(python):
    code = """
        import os, torch
        print(torch.npu.device_count())
        os.environ["TORCH_NPU_DRIVER"] = "template"
        print(torch.npu.device_count(), torch.zeros(2, device="npu").cpu().tolist())
    """
    lines = python(code, TORCH_NPU_DRIVER="nonsense", TORCH_NPU_FALLBACK="quiet").lines()
    assert lines == ["0", "1 [0.0, 0.0]"]


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


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("d.struct_size = 100", "has a table of 100 bytes, expected at least"),
        ("d.copy_to_host = 0", "lacks the function copy_to_host, which the contract requires"),
        ("return 0", "returned no table from npu_driver_get"),
        ("", "could not count its devices: the bus is on fire"),
    ],
)
def test_a_wrong_table_is_refused_with_a_sentence(python, tmp_path, change, sentence):
    source, library = tmp_path / "wrong.c", tmp_path / "libwrong.so"
    source.write_text(WRONG_TABLE.replace("CHANGE", change))
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", f"-I{ROOT}/include", source, "-o", library], check=True)
    available, error = first_use(python, TORCH_NPU_DRIVER=str(library))
    assert available == "False"
    assert error.startswith("RuntimeError") and sentence in error and str(library) in error
