"""Tensors leave the device and come back: torch.save, pickle, copy, DLPack, shared memory."""

import copy
import io
import pickle

import numpy
import pytest
import torch
from torch.utils.dlpack import DLDeviceType


def saved(obj) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(obj, buffer)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize("weights_only", [True, False])
def test_save_and_load_keep_device_and_values(weights_only):
    x = torch.arange(6.0, device="npu").reshape(2, 3)
    y = torch.load(saved({"x": x}), weights_only=weights_only)["x"]
    assert y.device == x.device and y.cpu().tolist() == x.cpu().tolist()


@pytest.mark.parametrize(
    "location",
    ["cpu", torch.device("cpu"), {"npu:0": "cpu"}, lambda storage, place: storage],
    ids=["name", "device", "dict", "function"],
)
def test_map_location_takes_npu_tensors_to_the_cpu(location):
    y = torch.load(saved(torch.arange(3, device="npu:0")), map_location=location, weights_only=False)
    assert y.device.type == "cpu" and y.tolist() == [0, 1, 2]


@pytest.mark.parametrize("location", ["npu", "npu:0", torch.device("npu:0"), {"cpu": "npu:0"}], ids=str)
def test_map_location_takes_cpu_tensors_to_the_npu(location):
    y = torch.load(saved(torch.arange(3)), map_location=location)
    assert y.device == torch.device("npu:0") and y.cpu().tolist() == [0, 1, 2]


def test_map_location_moves_between_npus(two_devices):
    y = torch.load(saved(torch.arange(3, device="npu:0")), map_location="npu:1")
    assert y.device == torch.device("npu:1") and y.cpu().tolist() == [0, 1, 2]


def test_map_location_on_an_absent_device_says_what_to_do():
    with pytest.raises(RuntimeError, match="NPU device 99 but torch.npu.device_count"):
        torch.load(saved(torch.arange(3)), map_location="npu:99")


def test_a_file_from_the_npu_loads_in_a_process_without_it(tmp_path, python):
    torch.save(torch.arange(3, device="npu"), tmp_path / "x.pt")
    code = "import sys, torch; print(torch.load(sys.argv[1], map_location='cpu').tolist())"
    assert python(code, str(tmp_path / "x.pt"), TORCH_DEVICE_BACKEND_AUTOLOAD="0").lines() == ["[0, 1, 2]"]


def test_views_of_one_storage_stay_views():
    base = torch.zeros(4, device="npu")
    loaded = torch.load(saved([base, base[1:3]]))
    loaded[0].fill_(7)
    assert loaded[1].cpu().tolist() == [7, 7]


def test_module_and_optimizer_state_come_back():
    model = torch.nn.Linear(3, 2).npu()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3, device="npu")).sum().backward()
    optimizer.step()
    state = torch.load(saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()}))
    twin = torch.nn.Linear(3, 2).npu()
    twin.load_state_dict(state["model"])
    twin_optimizer = torch.optim.Adam(twin.parameters())
    twin_optimizer.load_state_dict(state["optimizer"])
    assert torch.equal(twin.weight.cpu(), model.weight.cpu())
    moments = [s["exp_avg"].cpu() for s in optimizer.state.values()]
    twin_moments = [s["exp_avg"].cpu() for s in twin_optimizer.state.values()]
    assert all(torch.equal(a, b) for a, b in zip(moments, twin_moments, strict=True))


def test_parameters_pickle_and_deepcopy():
    p = torch.nn.Parameter(torch.arange(3.0, device="npu"))
    for q in (pickle.loads(pickle.dumps(p)), copy.deepcopy(p)):
        assert isinstance(q, torch.nn.Parameter) and q.is_npu and q.requires_grad
        assert q.data_ptr() != p.data_ptr()
        assert q.detach().cpu().tolist() == [0, 1, 2]


def test_dlpack_round_trip_shares_memory():
    x = torch.arange(4, device="npu")
    assert x.__dlpack_device__() == (DLDeviceType.kDLExtDev, 0)
    y = torch.from_dlpack(x)
    assert y.device == x.device and y.data_ptr() == x.data_ptr()
    y.fill_(5)
    assert x.cpu().tolist() == [5, 5, 5, 5]


def test_dlpack_capsule_keeps_the_memory_alive():
    capsule = torch.utils.dlpack.to_dlpack(torch.full((1024,), 3.0, device="npu"))
    noise = [torch.zeros(1024, device="npu") for _ in range(4)]
    assert torch.utils.dlpack.from_dlpack(capsule).cpu().unique().tolist() == [3.0]
    del noise


def test_pinned_memory_is_plain_memory_for_others():
    x = torch.arange(4).pin_memory()
    assert x.is_pinned()
    assert x.__dlpack_device__() == (DLDeviceType.kDLCPU, 0)
    assert numpy.from_dlpack(x).tolist() == [0, 1, 2, 3]


def test_numpy_asks_for_a_cpu_tensor():
    with pytest.raises(TypeError, match="Use Tensor.cpu\\(\\)"):
        torch.ones(2, device="npu").numpy()


def test_print_shows_the_device():
    assert repr(torch.ones(2, device="npu")) == "tensor([1., 1.], device='npu:0')"
