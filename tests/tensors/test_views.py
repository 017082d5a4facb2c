"""Views share memory with their base, cost no copy, and never go through the CPU."""

import pytest
import torch

import torch_npu  # noqa: F401


def npu(*shape):
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape).to("npu")


def test_view_as_complex_and_view_as_real_share_memory():
    pairs = npu(4, 2)
    z = torch.view_as_complex(pairs)
    assert z.dtype == torch.complex64 and z.data_ptr() == pairs.data_ptr()
    real = torch.view_as_real(z)
    real[0, 1] = 9.0
    assert z[0].item() == 9j
    assert z.imag[0].item() == 9.0


def test_views_of_a_wrong_shape_raise_as_on_the_cpu():
    with pytest.raises(RuntimeError, match="is invalid for input of size 12"):
        npu(3, 4).view(5)
    with pytest.raises(RuntimeError, match="out of bounds for storage"):
        npu(3, 4).as_strided((13,), (1,))


def test_every_view_op_of_pytorch_has_a_kernel():
    """A view op that would reach the fallback raises; none of the dense ones may."""
    special = ("sparse", "nested", "_indices", "_values")
    missing = []
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::") or any(part in name for part in special):
            continue
        schema = torch._C._get_schema(*(name.split(".") if "." in name else (name, "")))
        is_view = any(a.alias_info is not None and not a.alias_info.is_write for a in schema.returns)
        if is_view and not torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "PrivateUse1"):
            missing.append(name)
        elif is_view and "fallback" in torch._C._dispatch_dump_table(name).split("PrivateUse1: ")[1].split("\n")[0]:
            missing.append(name)
    assert missing == []


def test_resize_grows_the_storage_and_keeps_the_contents():
    x = npu(4)
    x.resize_(2, 3)
    assert x.shape == (2, 3) and x.untyped_storage().nbytes() == 24
    assert x.view(-1)[:4].tolist() == [0.0, 1.0, 2.0, 3.0]
    before = x.data_ptr()
    x.resize_(2)
    assert x.data_ptr() == before and x.untyped_storage().nbytes() == 24


def test_resize_with_memory_format_restrides():
    x = torch.empty(0, device="npu").resize_(1, 2, 3, 4, memory_format=torch.channels_last)
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_set_shares_the_storage_of_another_tensor():
    x, y = npu(6), torch.empty(0, device="npu")
    y.set_(x.untyped_storage(), 2, (2, 2), (2, 1))
    assert y.tolist() == [[2.0, 3.0], [4.0, 5.0]]
    z = torch.empty(0, device="npu").set_(x)
    assert z.data_ptr() == x.data_ptr() and z.shape == (6,)
    z.set_()
    assert z.numel() == 0 and x.tolist()[5] == 5.0


def test_set_to_a_storage_of_the_cpu_is_refused():
    with pytest.raises(RuntimeError, match="on different device"):
        torch.empty(0, device="npu").set_(torch.zeros(3))


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 4, 5)])
def test_empty_has_the_strides_of_the_cpu(shape):
    for kwargs in ({}, {"dtype": torch.int16}, {"memory_format": torch.channels_last} if len(shape) == 4 else {}):
        got, want = torch.empty(shape, device="npu", **kwargs), torch.empty(shape, **kwargs)
        assert (got.shape, got.stride(), got.dtype) == (want.shape, want.stride(), want.dtype)
        assert got.device == torch.device("npu", 0)


def test_empty_strided_refuses_negative_strides_as_the_cpu_does():
    with pytest.raises(RuntimeError, match="Storage size calculation overflowed"):
        torch.empty_strided((2,), (-1,), device="npu")


def test_empty_refuses_pinned_memory():
    with pytest.raises(RuntimeError, match="pin"):
        torch.empty(3, device="npu", pin_memory=True)


def test_deterministic_mode_fills_new_memory():
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3, device="npu").isnan().all().item()
        assert torch.empty(3, dtype=torch.int32, device="npu").tolist() == [2**31 - 1] * 3
    finally:
        torch.use_deterministic_algorithms(False)
