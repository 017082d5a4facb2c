"""What PyTorch's own machinery asks of csrc/core: copy-on-write, storages, allocator settings, generators, threads."""

import os
import subprocess
import threading

import pytest
import torch

from tests.support import ROOT


def values(tensor: torch.Tensor) -> list[float]:
    return tensor.cpu().tolist()


def test_copy_on_write_clones_when_written():
    a = torch.arange(4.0).to("npu")
    b = torch._lazy_clone(a)
    assert torch._C._is_cow_tensor(b)
    assert torch._C._data_address(a) == torch._C._data_address(b)
    b.copy_(torch.full((4,), 7.0))
    assert values(a) == [0, 1, 2, 3]
    assert values(b) == [7, 7, 7, 7]
    assert torch._C._data_address(a) != torch._C._data_address(b)


def test_copy_on_write_keeps_contents_of_a_partial_write():
    a = torch.arange(4.0).to("npu")
    b = torch._lazy_clone(a)
    b[:2].copy_(torch.full((2,), 9.0))
    assert values(a) == [0, 1, 2, 3]
    assert values(b) == [9, 9, 2, 3]


def test_storage_growth_keeps_the_contents():
    x = torch.arange(8.0).to("npu")
    storage = x.untyped_storage()
    storage.resize_(1 << 20)
    assert storage.size() == 1 << 20
    assert values(x) == list(range(8))
    storage.resize_(16)
    assert values(x[:4]) == [0, 1, 2, 3]


def test_a_pointer_inside_pinned_memory_is_pinned():
    x = torch.empty(1000, pin_memory=True)
    assert x[500:].is_pinned()
    assert not torch.empty(1000).is_pinned()


def test_pinned_memory_is_not_reused_while_a_copy_reads_it():
    device = torch.device("npu")
    for k in range(50):
        source = torch.full((20_000,), float(k)).pin_memory()
        target = source.to(device, non_blocking=True)
        del source
        torch.full((20_000,), -1.0).pin_memory()
        assert target.cpu().eq(k).all()


def test_a_tensor_of_another_stream_and_device_can_be_recorded(two_devices):
    x = torch.ones(1000, device="npu:0")
    x.record_stream(torch.Stream(device="npu:0"))
    x.record_stream(torch.Stream(device="npu:1"))
    before = torch.npu.memory_allocated(0)
    del x
    torch.npu.synchronize(0)
    torch.npu.synchronize(1)
    torch.npu.empty_cache()
    assert torch.npu.memory_allocated(0) < before
    assert torch.npu.memory_stats(0)["active_bytes.all.current"] == torch.npu.memory_allocated(0)


def test_generators_share_a_state_on_request():
    a = torch.Generator(device="npu").manual_seed(3)
    b = torch.Generator(device="npu").manual_seed(4)
    b.graphsafe_set_state(a.graphsafe_get_state())
    a.manual_seed(5)
    assert b.initial_seed() == 5
    c = a.clone_state()
    a.manual_seed(6)
    assert c.initial_seed() == 5


def test_generator_offset_is_a_multiple_of_four():
    g = torch.Generator(device="npu")
    g.set_offset(8)
    assert g.get_offset() == 8
    state = g.get_state()
    assert state.numel() == 16 and int.from_bytes(bytes(state[8:].tolist()), "little") == 8
    try:
        g.set_offset(6)
    except RuntimeError as error:
        assert "multiple of 4" in str(error)
    else:
        raise AssertionError("an offset of 6 was accepted")


def test_every_thread_allocates_and_frees():
    torch.npu.synchronize()
    before = torch.npu.memory_allocated()
    failures = []

    def work():
        try:
            with torch.npu.stream(torch.npu.Stream()):
                for size in range(1, 300):
                    x = torch.empty(size * 100, device="npu")
                    assert x.data_ptr() != 0
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert torch.npu.memory_allocated() == before


def test_expandable_segments_serve_growing_tensors(python):
    code = """
        import torch
        for size in (1, 12, 30, 50):
            x = torch.empty(size << 20, dtype=torch.uint8, device="npu")
            del x
        segments = [s for s in torch.npu.memory_snapshot() if s["segment_type"] == "large"]
        print(len(segments), all(s["is_expandable"] for s in segments), torch.npu.memory_reserved() < 80 << 20)
        torch.npu.empty_cache()
        print(torch.npu.memory_reserved())
    """
    assert python(code, PYTORCH_ALLOC_CONF="expandable_segments:True").lines() == ["1 True True", "0"]


def test_max_split_size_is_followed(python):
    code = """
        import torch
        big = torch.empty(64 << 20, dtype=torch.uint8, device="npu")
        del big
        small = torch.empty(12 << 20, dtype=torch.uint8, device="npu")
        print(torch.npu.memory_stats()["segment.all.current"])
    """
    assert python(code, PYTORCH_ALLOC_CONF="max_split_size_mb:32").lines() == ["2"]
    assert python(code).lines() == ["1"]


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


def test_an_unknown_allocator_key_is_refused_at_the_first_use_of_the_device(python):
    available, error = first_use(python, PYTORCH_ALLOC_CONF="max_split_size_mb:32,max_splitt:1")
    assert available == "True"
    assert "ValueError: Unrecognized key 'max_splitt'" in error


def test_another_driver_can_be_chosen_after_a_failure(python):
    code = """
        import os, torch
        print(torch.npu.device_count())
        os.environ["TORCH_NPU_DRIVER"] = "template"
        print(torch.npu.device_count(), torch.zeros(2, device="npu").cpu().tolist())
    """
    lines = python(code, TORCH_NPU_DRIVER="nonsense", TORCH_NPU_FALLBACK="quiet").lines()
    assert lines == ["0", "1 [0.0, 0.0]"]


def test_the_profiler_sees_device_memory():
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.empty(1 << 20, device="npu", dtype=torch.uint8)
    changes = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    npu = [e.nbytes() for e in changes if e.device_type() == torch._C._autograd.DeviceType.PrivateUse1]
    assert sorted(npu) == [-(1 << 20), 1 << 20]


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


def test_the_event_profiler_times_ops_on_the_device(cmodel):
    x = torch.randn(256, 256, device="npu")
    with torch.autograd.profiler.profile(use_device="npu") as profile:
        x @ x
    (mm,) = [e for e in profile.key_averages() if e.key == "aten::mm"]
    assert 0 < mm.device_time_total < 1e6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.complex64])
def test_a_large_tensor_prints_as_on_the_cpu_and_stays_where_it_is(dtype, monkeypatch):
    x = torch.arange(40_000).reshape(200, 200).to(dtype)
    y = x.to("npu")
    monkeypatch.setattr(torch.Tensor, "cpu", smaller_than(2000, torch.Tensor.cpu))
    assert str(y).replace(", device='npu:0'", "").replace("\n       dtype", " dtype") == str(x).replace(
        "\n       dtype", " dtype"
    )


def smaller_than(limit, cpu):
    def checked(self, *arguments):
        assert self.numel() < limit
        return cpu(self, *arguments)

    return checked
