"""3. Memory. A cache stands between tensors and the driver, and counts both."""

import gc

import pytest
import torch

MIB = 1 << 20


@pytest.fixture(autouse=True)
def nothing_cached():
    gc.collect()
    torch.npu.synchronize()
    torch.npu.empty_cache()


def test_a_tensor_is_counted_while_it_lives():
    before = torch.npu.memory_allocated()
    x = torch.empty(4 * MIB, dtype=torch.uint8, device="npu")
    assert torch.npu.memory_allocated() == before + 4 * MIB
    del x
    assert torch.npu.memory_allocated() == before


def test_freed_memory_is_cached_and_empty_cache_gives_it_back():
    start = torch.npu.memory_reserved()
    free = torch.npu.mem_get_info()[0]
    x = torch.empty(64 * MIB, dtype=torch.uint8, device="npu")
    del x
    assert torch.npu.memory_reserved() >= start + 64 * MIB
    assert torch.npu.mem_get_info()[0] <= free - 64 * MIB
    torch.npu.empty_cache()
    assert torch.npu.memory_reserved() == start
    assert torch.npu.mem_get_info()[0] == free


def test_snapshot_has_the_block_of_a_tensor():
    x = torch.empty(5 * MIB, dtype=torch.uint8, device="npu")
    segments = [s for s in torch.npu.memory_snapshot() if s["device"] == 0]
    holders = [s for s in segments if s["address"] <= x.data_ptr() < s["address"] + s["total_size"]]
    assert len(holders) == 1
    blocks = [b for b in holders[0]["blocks"] if b["address"] == x.data_ptr()]
    assert [(b["state"], b["size"] >= 5 * MIB) for b in blocks] == [("active_allocated", True)]
    assert sum(b["size"] for b in holders[0]["blocks"]) == holders[0]["total_size"]
    assert sum(s["total_size"] for s in segments) == torch.npu.memory_reserved(0)
