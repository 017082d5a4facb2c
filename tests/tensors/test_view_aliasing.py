"""Writing through any view reaches the base, and views are related to their base exactly as on the CPU."""

import pytest
import torch

import torch_npu


def real(device):
    return torch.arange(24.0).reshape(2, 3, 4).to(device, copy=True)


def square(device):
    return torch.arange(48.0).reshape(3, 4, 4).to(device, copy=True)


def complex_(device):
    return torch.view_as_complex(torch.arange(24.0).reshape(3, 4, 2)).to(device, copy=True)


# Name: the base, and a function to one or several views of it.
VIEWS = {
    "alias": (real, torch.ops.aten.alias),
    "as_strided": (real, lambda x: x.as_strided((2, 3), (1, 5), 2)),
    "broadcast_to": (real, lambda x: torch.broadcast_to(x[:1], (5, 3, 4))[0]),
    "chunk": (real, lambda x: x.chunk(3, dim=2)),
    "contiguous": (real, lambda x: x.contiguous()),
    "detach": (real, lambda x: x.detach()),
    "diagonal": (square, lambda x: x.diagonal(1, dim1=1, dim2=2)),
    "dsplit": (real, lambda x: x.dsplit(2)),
    "expand": (real, lambda x: x[:, :1].expand(2, 3, 4)[:, 0]),
    "expand_as": (real, lambda x: x[:1].expand_as(x)[1]),
    "flatten": (real, lambda x: x.flatten()),
    "flatten_part": (real, lambda x: x.flatten(1)),
    "getitem": (real, lambda x: x[1, :, ::2]),
    "getitem_newaxis": (real, lambda x: x[..., None, 1]),
    "hsplit": (real, lambda x: x.hsplit(3)),
    "H": (square, lambda x: x[0].H),
    "imag": (complex_, lambda x: x.imag),
    "adjoint": (square, lambda x: x.adjoint()),
    "mH": (square, lambda x: x.mH),
    "movedim": (real, lambda x: x.movedim(0, 2)),
    "moveaxis": (real, lambda x: x.moveaxis(2, 0)),
    "mT": (real, lambda x: x.mT),
    "narrow": (real, lambda x: x.narrow(1, 1, 2)),
    "permute": (real, lambda x: x.permute(2, 0, 1)),
    "ravel": (real, lambda x: x.ravel()),
    "real": (complex_, lambda x: x.real),
    "real_of_real": (real, lambda x: x.real),
    "reshape": (real, lambda x: x.reshape(6, 4)),
    "reshape_as": (real, lambda x: x.reshape_as(torch.empty(4, 6))),
    "reshape_of_transposed": (real, lambda x: x.transpose(0, 1).reshape(3, 2, 2, 2)),
    "resolve_conj": (complex_, lambda x: x.resolve_conj()),
    "select": (real, lambda x: x.select(1, 2)),
    "split": (real, lambda x: x.split(3, dim=2)),
    "split_sizes": (real, lambda x: x.split([1, 3], dim=2)),
    "squeeze": (real, lambda x: x[:, :1].squeeze()),
    "squeeze_dim": (real, lambda x: x[:, :1].squeeze(1)),
    "swapaxes": (real, lambda x: x.swapaxes(0, 2)),
    "swapdims": (real, lambda x: x.swapdims(0, 1)),
    "T": (real, lambda x: x[0].T),
    "t": (real, lambda x: x[1].t()),
    "tensor_split": (real, lambda x: x.tensor_split(3, dim=2)),
    "tensor_split_at": (real, lambda x: x.tensor_split((1, 2), dim=2)),
    "transpose": (real, lambda x: x.transpose(0, 1)),
    "unbind": (real, lambda x: x.unbind(1)),
    "unflatten": (real, lambda x: x.unflatten(2, (2, 2))),
    "unfold": (real, lambda x: x.unfold(2, 2, 2)),
    "unsqueeze": (real, lambda x: x.unsqueeze(1)),
    "view": (real, lambda x: x.view(4, 6)),
    "view_as": (real, lambda x: x.view_as(torch.empty(8, 3))),
    "view_as_complex": (real, lambda x: torch.view_as_complex(x.view(12, 2))),
    "view_as_real": (complex_, torch.view_as_real),
    "view_dtype_same": (real, lambda x: x.view(torch.int32)),
    "view_dtype_narrower": (real, lambda x: x.view(torch.int16)),
    "view_dtype_wider": (real, lambda x: x.view(torch.float64)),
    "vsplit": (real, lambda x: x.vsplit(2)),
    "chain": (real, lambda x: x.transpose(0, 2)[1:].unsqueeze(1).expand(3, 2, 3, 2)[:, 0].diagonal(0, 1, 2)),
    "conj": (complex_, lambda x: x.conj()),
    "conj_imag": (complex_, lambda x: x.conj().imag),
}


def made(name, device):
    """The base and a list of its views."""
    make, look = VIEWS[name]
    base = make(device)
    views = look(base)
    return base, list(views) if isinstance(views, list | tuple) else [views]


def relation(view, base):
    """All that says how a view hangs on its base."""
    return {
        "shape": view.shape,
        "stride": view.stride(),
        "offset": view.storage_offset(),
        "dtype": view.dtype,
        "bits": (view.is_conj(), view.is_neg()),
        "is_view": view._is_view(),
        "base": view._base is base,
        "same": view is base,
        "storage": view.untyped_storage().data_ptr() == base.untyped_storage().data_ptr(),
        "distance": view.data_ptr() - base.data_ptr(),
    }


@pytest.mark.parametrize("name", VIEWS)
def test_relation_to_the_base_is_that_of_the_cpu(name):
    torch_npu.fallback.reset()
    base, views = made(name, "npu")
    cpu_base, cpu_views = made(name, "cpu")
    assert len(views) == len(cpu_views)
    for view, cpu_view in zip(views, cpu_views, strict=True):
        assert relation(view, base) == relation(cpu_view, cpu_base)
        assert view.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
        torch.testing.assert_close(view.cpu(), cpu_view)
    assert torch_npu.fallback.report() == {}


@pytest.mark.parametrize("name", VIEWS)
def test_write_through_a_view_reaches_the_base_and_back(name):
    results = []
    for device in ("npu", "cpu"):
        base, views = made(name, device)
        before = base._version
        for number, view in enumerate(views):
            view.fill_(90 + number)
            view.add_(1)
            # The CPU's view(dtype) of a view is as the others: it counts with its base.
            assert base._version == view._version or name == "detach"
        middle = base.clone().cpu()
        changed = base._version > before
        base.view(-1)[5] = -7
        results.append((middle, changed, [view.cpu() for view in views], base.cpu()))
    (middle, changed, views, base), (want_middle, want_changed, want_views, want_base) = results
    assert changed and want_changed
    torch.testing.assert_close(middle, want_middle)
    torch.testing.assert_close(base, want_base)
    for view, want in zip(views, want_views, strict=True):
        torch.testing.assert_close(view, want)


COPIES = {
    "reshape_that_must_copy": lambda x: x.transpose(0, 1).reshape(-1),
    "contiguous_of_transposed": lambda x: x.t().contiguous(),
    "clone": lambda x: x.clone(),
    "flatten_that_must_copy": lambda x: x.t().flatten(),
    "to_other_type": lambda x: x.to(torch.float64),
    "index_by_list": lambda x: x[[0, 1]],
    "repeat": lambda x: x.repeat(1, 1),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_has_memory_of_its_own(name):
    for device in ("cpu", "npu"):
        base = torch.arange(6.0).reshape(2, 3).to(device)
        copy = COPIES[name](base)
        assert not copy._is_view() and copy.untyped_storage().data_ptr() != base.untyped_storage().data_ptr()
        copy.fill_(9)
        assert base.view(-1).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    "same", [lambda x: x.to("npu"), lambda x: x.npu(), lambda x: x.contiguous(), lambda x: x.float()]
)
def test_a_conversion_with_nothing_to_do_is_the_tensor_itself(same):
    x = real("npu")
    assert same(x) is x


# -- writes of every kind through a view that is not contiguous --

WRITES = {
    "fill": lambda v: v.fill_(3),
    "zero": lambda v: v.zero_(),
    "copy": lambda v: v.copy_(torch.arange(float(v.numel())).reshape(v.shape)),
    "add": lambda v: v.add_(2),
    "mul_by_itself": lambda v: v.mul_(v),
    "out": lambda v: torch.sin(torch.ones_like(v), out=v),
    "matmul_out": lambda v: torch.mm(torch.ones(4, 2, device=v.device), torch.ones(2, 3, device=v.device), out=v),
    "index_put": lambda v: v.index_put_((torch.tensor([0, 2], device=v.device),), torch.tensor(5.0, device=v.device)),
    "setitem": lambda v: v.__setitem__((slice(None), 1), -1),
    "setitem_mask": lambda v: v.__setitem__(v > 10, 0),
    "scatter": lambda v: v.scatter_(0, torch.zeros(1, 3, dtype=torch.int64, device=v.device), 8.0),
    "masked_fill": lambda v: v.masked_fill_(v > 5, 1.0),
    "clamp": lambda v: v.clamp_(3, 9),
    "sort_out": lambda v: torch.sort(v.clone(), 0, out=(v, torch.empty(v.shape, dtype=torch.int64, device=v.device))),
    "cumsum": lambda v: v.cumsum_(0),
    "relu": lambda v: torch.relu_(v),
    "lerp": lambda v: v.lerp_(torch.zeros_like(v), 0.5),
    "addmm": lambda v: v.addmm_(torch.ones(4, 2, device=v.device), torch.ones(2, 3, device=v.device)),
    "uniform": lambda v: v.uniform_(2, 2),
    "transpose_in_place": lambda v: v.t_().add_(1),
}


@pytest.mark.parametrize("name", WRITES)
def test_every_kind_of_write_goes_through_a_strided_view(name):
    start = (torch.arange(40.0) * 7 % 40 - 20).reshape(5, 8)
    results = []
    for device in ("npu", "cpu"):
        base = start.to(device, copy=True)
        view = base[1:4, ::2].t()  # 4 x 3, of strides (2, 8)
        WRITES[name](view)
        results.append(base.cpu())
    torch.testing.assert_close(results[0], results[1])
    assert not torch.equal(results[0], start)


def test_partial_overlap_is_refused_as_on_the_cpu():
    for device in ("cpu", "npu"):
        x = torch.arange(6.0).to(device)
        with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to tensor refer to"):
            torch.add(x[1:], 1, out=x[:-1])
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single"):
            x[:1].expand(3).add_(1)


# -- autograd --


def gradients(function):
    """The gradient of the first argument, on both devices."""
    results = []
    for device in ("npu", "cpu"):
        leaf = torch.arange(1.0, 13.0).reshape(3, 4).to(device).requires_grad_()
        weight = torch.linspace(-1, 1, 12).reshape(3, 4).to(device)
        (function(leaf * 1) * weight).sum().backward()
        results.append(leaf.grad.cpu())
    return results


def in_place_select(x):
    x[1].mul_(3)
    return x


def in_place_diagonal(x):
    x.diagonal().fill_(2)
    return x


def in_place_chain(x):
    x.t()[1:].unsqueeze(0).squeeze(0)[:, 0].exp_()
    return x


def in_place_copy(x):
    x[:, 1:].copy_(x[:, :-1] * 2)
    return x


def in_place_of_a_flat_view(x):
    x.view(-1)[::3].mul_(x.view(-1)[1::3].clone())
    return x


def in_place_as_strided(x):
    x.as_strided((3,), (5,)).neg_()
    return x


def in_place_permuted(x):
    x.permute(1, 0).unfold(0, 2, 2)[0].mul_(x[2, 2].item())
    return x


@pytest.mark.parametrize(
    "function",
    [
        in_place_select,
        in_place_diagonal,
        in_place_chain,
        in_place_copy,
        in_place_of_a_flat_view,
        in_place_as_strided,
        in_place_permuted,
    ],
)
def test_gradient_through_a_write_to_a_view_is_that_of_the_cpu(function):
    got, want = gradients(function)
    torch.testing.assert_close(got, want)


def test_view_of_a_written_base_has_a_new_history():
    for device in ("cpu", "npu"):
        x = torch.ones(4, device=device, requires_grad=True)
        base = x * 1
        view = base[1:3]
        before = view.grad_fn
        base.mul_(2)
        assert view.grad_fn is not before and type(view.grad_fn).__name__ == "AsStridedBackward0"
        view.sum().backward()
        assert x.grad.tolist() == [0.0, 2.0, 2.0, 0.0]


def test_a_value_that_was_saved_for_backward_and_then_overwritten_is_noticed():
    for device in ("cpu", "npu"):
        x = torch.ones(4, device=device, requires_grad=True)
        y = x.exp()
        y[:2].zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_in_place_on_a_view_of_a_leaf_is_refused():
    for device in ("cpu", "npu"):
        x = torch.ones(4, device=device, requires_grad=True)
        with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
            x[:2].add_(1)
        with torch.no_grad():
            x[:2].add_(1)
        assert x.tolist() == [2.0, 2.0, 1.0, 1.0]


def test_views_of_several_outputs_are_not_written_with_gradients():
    for device in ("cpu", "npu"):
        x = torch.ones(4, device=device, requires_grad=True) * 1
        first, _ = x.split(2)
        with pytest.raises(RuntimeError, match="a function that returns multiple views"):
            first.add_(1)


def test_versions_count_as_on_the_cpu():
    counts = []
    for device in ("npu", "cpu"):
        base = torch.zeros(2, 3, device=device)
        view, away = base.t(), base.detach()
        seen = []
        for write in (
            lambda b, v: v.add_(1),
            lambda b, v: b.zero_(),
            lambda b, v: v[0].fill_(2),
            lambda b, v: torch.neg(b, out=b),
            lambda b, v: v.data.add_(1),
            lambda b, v: b.__setitem__(0, 1.0),
        ):
            write(base, view)
            seen.append((base._version, view._version, away._version))
        counts.append(seen)
    assert counts[0] == counts[1]


def test_base_of_a_view_of_a_view_is_the_first():
    x = real("npu")
    view = x.transpose(0, 1)[1].unsqueeze(0)
    assert view._base is x and x._base is None
    assert x.detach()._base is None or x.detach()._base is x  # as PyTorch's detach: see the table above
    with torch.no_grad():
        assert x[0]._is_view()
    with torch.inference_mode():
        assert not x.clone()[0]._is_view()


def test_data_shares_memory_and_hides_writes_from_autograd():
    x = torch.ones(3, device="npu", requires_grad=True)
    before = x._version
    x.data[0] = 5
    assert x.tolist() == [5.0, 1.0, 1.0] and x._version == before


def test_module_keeps_shared_parameters_shared():
    """Tied weights: one parameter under two names stays one, and the same object, on the way."""
    first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    second.weight = first.weight
    model = torch.nn.Sequential(first, second)
    parameter = first.weight
    model.to("npu")
    assert model[0].weight is model[1].weight is parameter and parameter.device.type == "npu"
    model(torch.ones(1, 3, device="npu")).sum().backward()
    assert parameter.grad.device.type == "npu"
    model.to("cpu")
    assert parameter.device.type == "cpu" and parameter.grad.device.type == "cpu"


def test_data_of_another_device_can_be_assigned():
    x = torch.zeros(2)
    x.data = torch.ones(3, device="npu")
    assert x.device.type == "npu" and x.tolist() == [1.0, 1.0, 1.0]
    x.data = torch.full((1,), 4.0)
    assert x.device.type == "cpu" and x.tolist() == [4.0]
