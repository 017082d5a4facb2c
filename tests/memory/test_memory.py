"""What the allocator says about memory, its limits, and that nothing is lost."""

import gc
import threading

import pytest
import torch

MIB = 1 << 20


@pytest.fixture(autouse=True)
def fresh():
    gc.collect()
    torch.npu.synchronize()
    torch.npu.empty_cache()
    torch.npu.reset_peak_memory_stats()


def test_peak_stays_and_can_be_reset():
    before = torch.npu.memory_allocated()
    x = torch.empty(8 * MIB, dtype=torch.uint8, device="npu")
    del x
    assert torch.npu.max_memory_allocated() == before + 8 * MIB
    torch.npu.reset_peak_memory_stats()
    assert torch.npu.max_memory_allocated() == before


def test_cached_memory_serves_the_next_tensor():
    x = torch.empty(16 * MIB, dtype=torch.uint8, device="npu")
    address = x.data_ptr()
    del x
    taken = torch.npu.memory_stats()["num_device_alloc"]
    assert torch.empty(16 * MIB, dtype=torch.uint8, device="npu").data_ptr() == address
    assert torch.npu.memory_stats()["num_device_alloc"] == taken


def test_stats_have_cudas_keys_and_agree_with_torch_accelerator():
    stats = torch.npu.memory_stats()
    for kind in ("allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes"):
        for pool in ("all", "small_pool", "large_pool"):
            for metric in ("current", "peak", "allocated", "freed"):
                assert stats[f"{kind}.{pool}.{metric}"] >= 0
    assert list(stats) == sorted(stats)
    assert torch.accelerator.memory.memory_allocated() == torch.npu.memory_allocated()
    assert torch.accelerator.memory.max_memory_reserved() == torch.npu.max_memory_reserved()
    assert torch.accelerator.memory.memory_stats() == stats


def test_accumulated_stats_can_be_reset():
    torch.empty(MIB, device="npu")
    torch.npu.reset_accumulated_memory_stats()
    assert torch.npu.memory_stats()["allocated_bytes.all.freed"] == 0


def test_devices_are_counted_apart(two_devices):
    before = torch.npu.memory_allocated(0), torch.npu.memory_allocated("npu:1")
    x = torch.empty(MIB, dtype=torch.uint8, device="npu:1")
    assert (torch.npu.memory_allocated(0), torch.npu.memory_allocated("npu:1")) == (before[0], before[1] + x.numel())


def test_summary_is_a_table_for_people():
    x = torch.empty(32 * MIB, dtype=torch.uint8, device="npu")
    text = torch.npu.memory_summary()
    assert "npu:0" in text and "32.0 MiB" in text and "large pool" in text
    assert "large pool" not in torch.npu.memory_summary(abbreviated=True)
    del x


def test_fraction_caps_the_process():
    total = torch.npu.mem_get_info()[1]
    before = torch.npu.get_per_process_memory_fraction()
    torch.npu.set_per_process_memory_fraction((torch.npu.memory_reserved() + 64 * MIB) / total)
    try:
        torch.empty(16 * MIB, dtype=torch.uint8, device="npu")
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(256 * MIB, dtype=torch.uint8, device="npu")
    finally:
        torch.npu.set_per_process_memory_fraction(before)
    assert torch.empty(256 * MIB, dtype=torch.uint8, device="npu").numel() == 256 * MIB


@pytest.mark.parametrize(("fraction", "error"), [(1.5, ValueError), (-0.1, ValueError), ("half", TypeError)])
def test_bad_fraction_is_refused(fraction, error):
    with pytest.raises(error, match="expected a fraction"):
        torch.npu.set_per_process_memory_fraction(fraction)


def test_more_than_the_device_is_out_of_memory_and_the_device_goes_on():
    free, total = torch.npu.mem_get_info()
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(2 * total, dtype=torch.uint8, device="npu")
    text = str(caught.value)
    assert "npu:0" in text and "GiB" in text or "MiB" in text
    assert torch.npu.memory_stats()["num_ooms"] >= 1
    assert torch.ones(4, device="npu").sum().item() == 4
    assert torch.npu.mem_get_info()[0] == free or torch.npu.memory_reserved() > 0


def test_a_full_device_drops_its_cache_before_it_gives_up(python):
    code = """
        import torch
        x = torch.empty(100 << 20, dtype=torch.uint8, device="npu")
        del x
        y = torch.empty(180 << 20, dtype=torch.uint8, device="npu")
        print(torch.npu.memory_stats()["num_alloc_retries"])
    """
    assert python(code, TORCH_NPU_DRIVER="cmodel:memory=256M").lines() == ["1"]


def test_memory_returns_to_zero_after_training(python):
    code = """
        import gc, torch
        model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).npu()
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(20):
            optimizer.zero_grad()
            loss = model(torch.randn(16, 32, device="npu")).square().mean()
            loss.backward()
            optimizer.step()
        print(torch.npu.memory_allocated() > 0)
        del model, optimizer, loss
        gc.collect()
        torch.npu.synchronize()
        print(torch.npu.memory_allocated())
        torch.npu.empty_cache()
        print(torch.npu.memory_reserved())
        free, total = torch.npu.mem_get_info()
        print(total - free)
    """
    assert python(code, TORCH_NPU_FALLBACK="quiet").lines() == ["True", "0", "0", "0"]


def test_storage_resize_frees_and_takes_memory():
    x = torch.ones(4 * MIB, dtype=torch.uint8, device="npu")
    before = torch.npu.memory_allocated()
    x.untyped_storage().resize_(0)
    assert torch.npu.memory_allocated() == before - 4 * MIB
    x.untyped_storage().resize_(4 * MIB)
    assert torch.npu.memory_allocated() == before
    assert x.fill_(3).sum(dtype=torch.int64).item() == 3 * 4 * MIB


def test_deprecated_names_say_the_new_one():
    with pytest.warns(FutureWarning, match="memory_reserved"):
        assert torch.npu.memory_cached() == torch.npu.memory_reserved()
    with pytest.warns(FutureWarning, match="reset_peak_memory_stats"):
        torch.npu.reset_max_memory_allocated()


def test_a_pool_has_memory_of_its_own():
    torch.npu.empty_cache()
    pool, mib = torch.npu.MemPool(), 1 << 18
    outside = torch.zeros(mib, device="npu")
    with torch.npu.use_mem_pool(pool):
        assert pool.use_count() == 2
        inside = torch.ones(3 * mib, device="npu")
        inner = torch.npu.MemPool()
        with torch.npu.use_mem_pool(inner):
            innermost = torch.ones(mib, device="npu")
        also = torch.ones(mib, device="npu")
    assert pool.use_count() == 1 and pool.id != inner.id != (0, 0)

    def holds(pool, tensor):
        return any(s["address"] <= tensor.data_ptr() < s["address"] + s["total_size"] for s in pool.snapshot())

    assert [holds(pool, t) for t in (inside, also, innermost, outside)] == [True, True, False, False]
    assert holds(inner, innermost) and {s["segment_pool_id"] for s in pool.snapshot()} == {pool.id}

    address = inside.data_ptr()
    del inside
    elsewhere = torch.ones(3 * mib, device="npu")
    assert not holds(pool, elsewhere)
    torch.npu.empty_cache()
    with torch.npu.use_mem_pool(pool):
        again = torch.ones(3 * mib, device="npu")
    assert again.data_ptr() == address and again.sum().item() == 3 * mib


def test_the_memory_of_a_pool_goes_back_with_it():
    torch.npu.empty_cache()
    before = torch.npu.memory_reserved()
    pool = torch.npu.MemPool()
    with torch.npu.use_mem_pool(pool):
        kept, freed = torch.ones(1 << 22, device="npu"), torch.ones(1 << 23, device="npu")
    del freed
    full = torch.npu.memory_reserved()
    assert full - before >= 48 << 20
    del pool
    assert 16 << 20 <= torch.npu.memory_reserved() - before < 48 << 20
    assert kept.sum().item() == 1 << 22
    del kept
    torch.npu.empty_cache()
    assert torch.npu.memory_reserved() == before


def test_a_pool_is_for_the_thread_that_uses_it():
    pool, made = torch.npu.MemPool(), []
    with torch.npu.use_mem_pool(pool):
        thread = threading.Thread(target=lambda: made.append(torch.ones(1 << 18, device="npu")))
        thread.start()
        thread.join()
    assert pool.snapshot() == []


def test_a_pool_can_be_left_on_another_thread():
    outer, inner = torch.npu.MemPool(), torch.npu.MemPool()
    use = torch.npu.use_mem_pool(inner)
    thread = threading.Thread(target=use.__enter__)
    thread.start()
    with torch.npu.use_mem_pool(outer):
        thread.join()
        use.__exit__(None, None, None)
        kept = torch.ones(1 << 18, device="npu")
    assert outer.snapshot() and not inner.snapshot() and kept.device.type == "npu"
    assert (outer.use_count(), inner.use_count()) == (1, 1)


def test_a_graph_can_use_a_pool():
    pool, x = torch.npu.MemPool(), torch.ones(1 << 18, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, pool=pool.id):
        y = x + 1
    assert pool.use_count() == 2 and pool.snapshot()
    graph.replay()
    assert y.sum().item() == 2 << 18
    with pytest.raises(NotImplementedError, match="expected the default settings"):
        torch.npu.MemPool(no_split=True)


def test_a_pool_belongs_to_its_device():
    pool = torch.npu.MemPool()
    with pytest.raises(ValueError, match="expected the pool's device, npu:0, got npu:1"):
        with torch.npu.use_mem_pool(pool, device=1):
            pass


def test_storage_growth_keeps_the_contents():
    x = torch.arange(8.0).to("npu")
    storage = x.untyped_storage()
    storage.resize_(1 << 20)
    assert storage.size() == 1 << 20
    assert x.tolist() == list(range(8))
    storage.resize_(16)
    assert x[:4].tolist() == [0, 1, 2, 3]


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
