"""Pinned host memory: who has it, and when it is used again."""

import torch


def test_pinned_block_freed_during_a_copy_is_not_reused_before_it_is_done():
    parts = []
    for i in range(64):
        host = torch.full((10_000,), float(i)).pin_memory()
        parts.append(host.to("npu", non_blocking=True))
        del host
    torch.accelerator.synchronize()
    assert [p[9_999].item() for p in parts] == [float(i) for i in range(64)]


def test_memory_pinned_by_another_driver_is_plain_memory(python):
    code = """
        import torch
        x = torch.ones(1_000_000).pin_memory()
        busy = torch.ones(1000, 1000, device="npu:1")
        for _ in range(4):
            busy = busy @ busy
        y = x.to("npu:1", non_blocking=True)
        x.zero_()
        print(y.cpu().eq(1).all().item())
    """
    assert python(code, TORCH_NPU_DRIVER="cmodel,cmodel", TORCH_NPU_FALLBACK="quiet").lines() == ["True"]


def test_pinned_memory_is_known_and_copies_both_ways():
    host = torch.arange(1000.0).pin_memory()
    back = torch.empty(1000, pin_memory=True)
    assert host.is_pinned() and host[500:].is_pinned() and back.is_pinned() and not torch.arange(3).is_pinned()
    back.copy_(host.to("npu", non_blocking=True), non_blocking=True)
    torch.npu.synchronize()
    assert torch.equal(back, host)
    assert torch.npu.host_memory_stats()["allocated_bytes.current"] >= 8000


def test_loader_pins_in_workers_and_copies_without_waiting():
    rows = torch.arange(64.0).view(16, 4)
    loader = torch.utils.data.DataLoader(rows, batch_size=4, pin_memory=True, num_workers=2)
    got = []
    for batch in loader:
        assert batch.is_pinned()
        got.append(batch.to("npu", non_blocking=True))
    assert torch.equal(torch.cat(got).cpu(), rows)
