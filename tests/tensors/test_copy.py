"""copy_, to, clone, contiguous and item: any pair of devices, dtypes, strides and bits gives what the CPU gives."""

import itertools
import os

import pytest
import torch

import torch_npu

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]
LAYOUTS = {
    "contiguous": lambda n: torch.zeros(n, n),
    "transposed": lambda n: torch.zeros(n, n).t(),
    "columns": lambda n: torch.zeros(n, 2 * n)[:, ::2],
    "offset": lambda n: torch.zeros(n + 1, n + 3)[1:, 2:-1],
}


def values(dtype, n=5):
    x = torch.arange(n * n).reshape(n, n)
    if dtype.is_complex:
        return torch.complex(x.double(), -x.double() - 1).to(dtype)
    if dtype.is_floating_point:
        return (x.double() * 0.75).to(dtype)
    return (x % 3).to(dtype)


def with_layout(x, layout, device):
    base = LAYOUTS[layout](x.shape[0])
    store = torch.zeros(base.untyped_storage().nbytes() // 4, dtype=x.dtype, device=device)
    out = store.as_strided(base.shape, base.stride(), base.storage_offset())
    return out.copy_(x)


@pytest.mark.parametrize("src,dst", list(itertools.product(DTYPES, DTYPES)))
@pytest.mark.filterwarnings("ignore:Casting complex")
def test_every_pair_of_dtypes_converts_as_on_the_cpu(src, dst):
    x = values(src)
    want = x.to(dst)
    device = x.to("npu")
    assert torch.equal(device.to(dst).cpu(), want), "on the device"
    assert torch.equal(torch.empty(5, 5, dtype=dst, device="npu").copy_(x).cpu(), want), "on the way to the device"
    assert torch.equal(torch.empty(5, 5, dtype=dst).copy_(device), want), "on the way to the host"


@pytest.mark.parametrize("src,dst", list(itertools.product(LAYOUTS, LAYOUTS)))
@pytest.mark.parametrize("where", [("npu", "npu"), ("npu", "cpu"), ("cpu", "npu")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128, torch.int8])
def test_every_pair_of_strides_copies_elements_and_nothing_else(src, dst, where, dtype):
    x = values(dtype)
    source = with_layout(x, src, where[0])
    target = with_layout(torch.full_like(x, 1), dst, where[1])
    around = target.untyped_storage().nbytes() // target.element_size()
    before = target.as_strided((around,), (1,), 0).cpu().clone()
    target.copy_(source)
    assert torch.equal(target.cpu(), x)
    want = before.as_strided(target.shape, target.stride(), target.storage_offset())
    want.copy_(x)
    assert torch.equal(target.as_strided((around,), (1,), 0).cpu(), before), "memory between the elements changed"


def test_source_is_broadcast():
    x = torch.empty(3, 4, device="npu").copy_(torch.arange(4.0))
    assert torch.equal(x.cpu(), torch.arange(4.0).expand(3, 4))
    x.copy_(torch.arange(3.0).to("npu").unsqueeze(1))
    assert torch.equal(x.cpu(), torch.arange(3.0).unsqueeze(1).expand(3, 4))


@pytest.mark.parametrize("bits", ["conj", "neg", "both"])
@pytest.mark.parametrize("where", [("npu", "npu"), ("npu", "cpu"), ("cpu", "npu")])
def test_conj_and_neg_bits_are_resolved_on_the_way(bits, where):
    def mark(z):
        return {"conj": lambda: z.conj(), "neg": lambda: torch._neg_view(z), "both": lambda: torch._neg_view(z.conj())}[
            bits
        ]()

    z = values(torch.complex64)
    want = mark(z).clone()
    out = torch.empty(5, 5, dtype=torch.complex64, device=where[1]).copy_(mark(z.to(where[0])))
    assert torch.equal(out.cpu(), want)
    # And into a destination that carries the bits.
    store = torch.empty(5, 5, dtype=torch.complex64, device=where[1])
    mark(store).copy_(z.to(where[0]))
    assert torch.equal(mark(store).cpu().resolve_conj().resolve_neg(), z)
    wide = torch.empty(5, 5, dtype=torch.complex128, device=where[1]).copy_(mark(z.to(where[0])))
    assert torch.equal(wide.cpu(), want.to(torch.complex128))


def test_imaginary_part_of_a_conjugate_is_negated():
    z = values(torch.complex64)
    got = z.to("npu").conj().imag
    assert got.is_neg()
    assert torch.equal(got.cpu(), z.conj().imag)
    assert torch.equal(got.clone().cpu(), z.conj().imag)


def test_clone_keeps_dense_strides_and_contiguous_removes_them():
    x = values(torch.float32).to("npu").t()
    assert x.clone().stride() == (1, 5)
    assert x.contiguous().stride() == (5, 1)
    assert torch.equal(x.contiguous().cpu(), values(torch.float32).t())
    image = torch.arange(24.0).reshape(1, 2, 3, 4)
    last = image.to("npu").contiguous(memory_format=torch.channels_last)
    assert last.is_contiguous(memory_format=torch.channels_last) and torch.equal(last.cpu(), image)


def test_more_dimensions_than_a_command_has():
    x = torch.arange(2.0**10).reshape([2] * 10).permute(9, 0, 8, 1, 7, 2, 6, 3, 5, 4)
    base = torch.arange(2.0**10).reshape([2] * 10).to("npu").permute(9, 0, 8, 1, 7, 2, 6, 3, 5, 4)
    assert torch.equal(base.contiguous().cpu(), x)
    assert torch.equal(base.to(torch.int32).cpu(), x.to(torch.int32))


def test_empty_tensors_and_scalars():
    assert torch.empty(0, 3, device="npu").copy_(torch.empty(0, 3)).cpu().shape == (0, 3)
    assert torch.tensor(3.5).to("npu").cpu().item() == 3.5
    assert torch.tensor([], dtype=torch.int64, device="npu").tolist() == []


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float8_e4m3fn, torch.float8_e5m2])
def test_item_of_every_dtype(dtype):
    x = torch.tensor(3).to(dtype)
    got = x.to("npu").item()
    assert got == x.item() and type(got) is type(x.item())


def test_item_of_a_view_reads_the_right_element():
    x = torch.arange(12.0, device="cpu").reshape(3, 4).to("npu")
    assert x.t()[2, 1].item() == 6.0
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        x.item()


def test_float8_moves_as_bytes():
    x = torch.randn(4, 4).to(torch.float8_e4m3fn)
    back = x.to("npu").t().contiguous().cpu()
    assert torch.equal(back.view(torch.uint8), x.t().contiguous().view(torch.uint8))


def test_copy_into_itself_changes_nothing_and_partial_overlap_is_refused():
    x = torch.arange(6.0).to("npu")
    x.copy_(x.view(6))
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(RuntimeError, match="clone\\(\\) the tensor"):
        x[1:].copy_(x[:-1])
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        torch.zeros(1, device="npu").expand(3).copy_(torch.ones(3))


def test_interleaved_views_of_one_storage_copy():
    x = torch.arange(8.0).to("npu")
    x[0::2].copy_(x[1::2])
    assert x.tolist() == [1, 1, 3, 3, 5, 5, 7, 7]


def test_shapes_that_do_not_broadcast_raise_as_on_the_cpu():
    for shapes in [((3,), (4,)), ((3,), (2, 3))]:
        with pytest.raises(RuntimeError) as cpu:
            torch.empty(shapes[0]).copy_(torch.empty(shapes[1]))
        for source in ("cpu", "npu"):
            with pytest.raises(RuntimeError) as npu:
                torch.empty(shapes[0], device="npu").copy_(torch.empty(shapes[1], device=source))
            assert str(npu.value).splitlines()[0] == str(cpu.value).splitlines()[0]


def test_pageable_memory_may_be_changed_after_a_non_blocking_copy():
    x = torch.ones(100_000)
    y = x.to("npu", non_blocking=True)
    x.zero_()
    assert y.cpu().eq(1).all()


@pytest.mark.skipif(torch.accelerator.device_count() < 2, reason="one device")
def test_copy_between_devices():
    x = values(torch.float32)
    other = x.to("npu:0").t().to("npu:1")
    assert other.device == torch.device("npu:1") and torch.equal(other.cpu(), x.t())
    assert torch.equal(torch.empty(5, 5, dtype=torch.float16, device="npu:0").copy_(other).cpu(), x.t().half())


def test_strided_converting_and_conjugating_copies_run_on_the_device():
    if "template" in os.environ["TORCH_NPU_DRIVER"]:
        pytest.skip("the template driver has no commands")
    x, z = values(torch.float32).to("npu"), values(torch.complex64).to("npu")
    with torch_npu.fallback.mode("error"):
        copies = [
            x.t().contiguous(),
            x.to(torch.bfloat16),
            x.to(torch.complex64),
            z.conj().clone(),
            z.conj().imag.clone(),
        ]
        wide = torch.empty(5, 5, dtype=torch.complex128, device="npu").copy_(z.t().conj())
    want_x, want_z = values(torch.float32), values(torch.complex64)
    want = [want_x.t(), want_x.bfloat16(), want_x.to(torch.complex64), want_z.conj(), want_z.conj().imag]
    for got, expected in zip(copies, want, strict=True):
        assert torch.equal(got.cpu(), expected)
    assert torch.equal(wide.cpu(), want_z.t().conj().to(torch.complex128))


def test_copy_on_write_clones_when_written():
    a = torch.arange(4.0).to("npu")
    b = torch._lazy_clone(a)
    assert torch._C._is_cow_tensor(b)
    assert torch._C._data_address(a) == torch._C._data_address(b)
    b.copy_(torch.full((4,), 7.0))
    assert a.tolist() == [0, 1, 2, 3]
    assert b.tolist() == [7, 7, 7, 7]
    assert torch._C._data_address(a) != torch._C._data_address(b)


def test_copy_on_write_keeps_contents_of_a_partial_write():
    a = torch.arange(4.0).to("npu")
    b = torch._lazy_clone(a)
    b[:2].copy_(torch.full((2,), 9.0))
    assert a.tolist() == [0, 1, 2, 3]
    assert b.tolist() == [9, 9, 2, 3]
