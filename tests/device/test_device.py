"""torch.npu's device functions, and what torch itself offers for a device."""

import pytest
import torch


def test_star_imports_give_the_names_of_torch_cuda_that_the_device_has():
    for ours, theirs in (
        (torch.npu, torch.cuda),
        (torch.npu.memory, torch.cuda.memory),
        (torch.npu.random, torch.cuda.random),
    ):
        assert all(hasattr(ours, name) for name in ours.__all__) and set(ours.__all__) <= set(dir(ours))
        assert {name for name in theirs.__all__ if hasattr(ours, name)} <= set(ours.__all__)


def test_set_device_accepts_every_form(two_devices):
    for device, index in ((1, 1), ("npu:0", 0), (torch.device("npu:1"), 1), ("npu", 1), (0, 0), (-1, 0)):
        torch.npu.set_device(device)
        assert torch.npu.current_device() == index


def test_plain_npu_means_the_current_device(two_devices):
    torch.npu.set_device(1)
    assert torch.empty(1, device="npu").device == torch.device("npu:1")


def test_device_context_restores_the_device_after_an_error(two_devices):
    with pytest.raises(KeyError), torch.npu.device(1):
        assert torch.npu.current_device() == 1
        raise KeyError
    assert torch.npu.current_device() == 0


def test_device_context_with_none_changes_nothing():
    with torch.npu.device(None):
        assert torch.npu.current_device() == 0


def test_device_of_follows_a_tensor_and_ignores_a_cpu_tensor(two_devices):
    with torch.npu.device_of(torch.empty(1, device="npu:1")):
        assert torch.npu.current_device() == 1
    with torch.npu.device_of(torch.empty(1)):
        assert torch.npu.current_device() == 0


def test_accelerator_device_index_context(two_devices):
    with torch.accelerator.device_index(1):
        assert torch.npu.current_device() == 1
        assert torch.accelerator.current_device_index() == 1
    assert torch.npu.current_device() == 0


def test_wrong_kind_of_device_is_refused():
    with pytest.raises(ValueError, match="expected an npu device, got cpu"):
        torch.npu.get_device_name("cpu")
    with pytest.raises(TypeError, match="expected a device, its index or its name, got float"):
        torch.npu.get_device_name(1.5)


def test_an_int_means_an_npu(two_devices):
    assert torch.ones(2).to(0).device == torch.device("npu:0")
    assert torch.ones(2, device=1).device == torch.device("npu:1")


def test_generated_tensor_methods(two_devices):
    x = torch.arange(3.0)
    assert not x.is_npu
    assert x.npu().is_npu
    assert x.npu(1).device == torch.device("npu:1")
    assert x.npu("npu:1").cpu().tolist() == [0, 1, 2]


def test_generated_storage_methods():
    storage = torch.arange(4, dtype=torch.uint8).untyped_storage()
    there = storage.npu()
    assert there.is_npu and not storage.is_npu
    assert list(there.cpu()) == [0, 1, 2, 3]


def test_packed_sequence_moves():
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(1)])
    assert packed.npu().is_npu


def test_legacy_types():
    x = torch.npu.FloatTensor([1, 2])
    assert x.is_npu and x.dtype == torch.float32 and x.cpu().tolist() == [1, 2]
    assert torch.npu.LongTensor(2, 3).shape == (2, 3)
    assert isinstance(x, torch.npu.FloatTensor) and not isinstance(x, torch.npu.HalfTensor)
    assert not isinstance(torch.ones(1), torch.npu.FloatTensor)
    assert x.type() == "torch.npu.FloatTensor"
    for kind in (torch.npu.HalfTensor, "torch.npu.HalfTensor"):
        y = torch.ones(2).type(kind)
        assert y.is_npu and y.dtype == torch.float16
    assert repr(torch.npu.HalfTensor) == "<class 'torch.npu.HalfTensor'>"


def test_torch_asks_for_every_name_that_libraries_use():
    names = """is_available device_count current_device set_device device synchronize is_initialized _lazy_init
        _is_in_bad_fork get_device_name get_device_properties get_device_capability is_bf16_supported mem_get_info
        empty_cache memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_stats
        memory_summary memory_snapshot reset_peak_memory_stats reset_max_memory_allocated memory_cached
        max_memory_cached reset_max_memory_cached manual_seed manual_seed_all initial_seed seed get_rng_state
        set_rng_state get_rng_state_all set_rng_state_all default_generators Stream Event stream current_stream
        default_stream set_stream get_amp_supported_dtype FloatTensor OutOfMemoryError""".split()
    assert [name for name in names if not hasattr(torch.npu, name)] == []
    assert [n for n in ("manual_seed", "get_rng_state", "set_rng_state") if not hasattr(torch.npu.random, n)] == []
    assert issubclass(torch.npu.amp.GradScaler, torch.amp.GradScaler)


def test_initialisation_is_lazy(python):
    code = """
        import torch
        print(torch.npu.is_initialized())
        torch.npu.is_available(), torch.npu.device_count(), torch.manual_seed(1)
        print(torch.npu.is_initialized())
        torch.empty(1, device="npu")
        print(torch.npu.is_initialized())
    """
    assert python(code).lines() == ["False", "False", "True"]


FORK = """
    import os, torch
    {before}
    pid = os.fork()
    if pid == 0:
        try:
            print(torch.ones(2, device="npu").sum().item(), flush=True)
        except RuntimeError as error:
            print(error, flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    print(torch.ones(3, device="npu").sum().item())
"""


def test_a_child_forked_after_use_is_told_to_spawn(python):
    child, parent = python(FORK.format(before="torch.empty(1, device='npu')")).lines()
    assert child.startswith("Cannot re-initialize NPU in forked subprocess")
    assert "'spawn' start method" in child
    assert parent == "3.0"


def test_a_child_forked_before_use_has_its_own_device(python):
    """Asking for devices and their memory is no use."""
    before = "torch.npu.is_available(), torch.npu.memory_allocated(), torch.npu.memory_stats()"
    assert python(FORK.format(before=before)).lines() == ["2.0", "3.0"]


def test_a_forked_child_cannot_reach_the_tensors_of_its_parent(python):
    """Their copies would wait for threads that do not exist in the child."""
    code = """
        import os, torch
        x, y = torch.ones(4, device="npu"), torch.zeros(4, device="npu")
        pid = os.fork()
        if pid == 0:
            for act in (x.cpu, x[0].item, lambda: x.copy_(torch.zeros(4)), lambda: x.copy_(y), lambda: x + 1):
                try:
                    print(act(), flush=True)
                except RuntimeError as error:
                    print(str(error)[:20], flush=True)
            print(torch.npu.memory_allocated(), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        print(x.sum().item())
    """
    assert python(code).lines() == ["Cannot re-initialize"] * 5 + ["0", "4.0"]


def test_manual_seed_in_a_forked_child_is_harmless(python):
    code = """
        import os, torch
        torch.empty(1, device="npu")
        pid = os.fork()
        if pid == 0:
            torch.manual_seed(3)
            print(torch.npu._is_in_bad_fork(), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
    """
    assert python(code).lines() == ["True"]


def test_data_loader_workers_feed_the_device():
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=1, pin_memory=True)
    batches = [batch for (batch,) in loader]
    assert all(batch.is_pinned() for batch in batches)
    assert sum(batch.npu(non_blocking=True).sum().item() for batch in batches) == 28
