"""Bad input: one sentence that says what to do, and the device works afterwards."""

import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch


def device_works() -> bool:
    return (torch.ones(4, device="npu") + 1).sum().item() == 8


# -- devices --


@pytest.mark.parametrize("act", [torch.npu.set_device, torch.npu.get_device_name, torch.npu.synchronize])
def test_a_device_index_that_is_not_there(act):
    with pytest.raises(RuntimeError, match=r"expected an npu device index from 0 to \d+, got 99"):
        act(99)
    assert device_works()


def test_a_tensor_on_a_device_that_is_not_there():
    with pytest.raises(RuntimeError, match=r"expected an npu device index from 0 to \d+, got 99"):
        torch.ones(2, device="npu:99")
    with pytest.raises(RuntimeError, match=r"got 99"):
        torch.ones(2).to("npu:99")
    assert device_works()


def test_memory_of_a_device_that_is_not_there():
    with pytest.raises(RuntimeError, match=r"got 99"):
        torch.npu.memory_allocated(99)


@pytest.mark.parametrize("call", [torch.npu.set_device, torch.npu.synchronize, torch.npu.memory_allocated])
def test_an_index_beyond_eight_bits(call):
    with pytest.raises(RuntimeError, match=r"expected an npu device index from 0 to \d+, got 256"):
        call(256)


def test_an_index_found_late_says_how_to_find_its_line(cmodel):
    row = torch.arange(3, device="npu")[torch.tensor([9], device="npu")]
    with pytest.raises(IndexError, match=r"aten::index.*index 9 is out of bounds.*TORCH_NPU_BLOCKING=1"):
        row.cpu()


def test_mixed_devices_are_refused_by_name(two_devices):
    a, b = torch.ones(2, device="npu:0"), torch.ones(2, device="npu:1")
    for x, y in ((a, torch.ones(2)), (a, b)):
        with pytest.raises(RuntimeError, match="same device"):
            x + y
    assert device_works()


def test_mixed_devices_are_refused_by_products_and_convolutions():
    a, b = torch.ones(1, 1, 2, 2, device="npu"), torch.ones(1, 1, 2, 2)
    for x, y in ((a, b), (b, a)):
        with pytest.raises(RuntimeError, match="same device"):
            torch.mm(x[0, 0], y[0, 0])
        with pytest.raises(RuntimeError, match="(?i)same( device)?|should be the same"):
            torch.conv2d(x, y)
    assert device_works()


def test_a_cpu_number_may_be_mixed_in():
    assert (torch.ones(2, device="npu") + torch.tensor(2.0)).cpu().tolist() == [3, 3]
    assert (torch.tensor(2.0) - torch.ones(2, device="npu")).cpu().tolist() == [1, 1]


def test_bad_shapes_have_pytorchs_own_message():
    with pytest.raises(RuntimeError) as on_cpu:
        torch.ones(2, 3) @ torch.ones(2, 3)
    with pytest.raises(RuntimeError) as on_npu:
        torch.ones(2, 3, device="npu") @ torch.ones(2, 3, device="npu")
    assert str(on_npu.value) == str(on_cpu.value)
    assert device_works()


# -- memory --


def test_allocation_beyond_the_device_says_the_numbers():
    total = torch.npu.mem_get_info()[1]
    with pytest.raises(torch.OutOfMemoryError, match=r"npu:0 is out of memory: tried to allocate .*GiB"):
        torch.empty(2 * total, dtype=torch.uint8, device="npu")
    assert device_works()


def test_a_size_that_overflows_is_refused():
    with pytest.raises(RuntimeError):
        torch.empty(1 << 62, dtype=torch.float64, device="npu")
    assert device_works()


# -- drivers that cannot be used: import torch works, the first use says why --

USE = """
    import torch
    print(torch.ones(2).sum().item(), torch.npu.is_available(), torch.npu.device_count())
    try:
        torch.ones(2, device="npu")
    except RuntimeError as error:
        print(str(error).splitlines()[0])
"""


def use(python, driver: str) -> str:
    alive, sentence = python(USE, TORCH_NPU_DRIVER=driver).lines()
    assert alive == "2.0 False 0"
    return sentence


def test_an_unknown_driver_lists_the_known_ones(python):
    sentence = use(python, "nonsense")
    assert 'driver "nonsense"' in sentence and "cmodel" in sentence and "template" in sentence


def test_a_path_that_is_not_there(python):
    assert "/no/such/driver.so" in use(python, "/no/such/driver.so")


def test_a_file_that_is_no_library(python, tmp_path):
    (tmp_path / "text.so").write_text("hello")
    assert str(tmp_path / "text.so") in use(python, str(tmp_path / "text.so"))


def test_an_option_that_is_not_known(python):
    assert "nonsense=1" in use(python, "cmodel:nonsense=1")


def test_a_driver_of_another_contract_version(python, broken_driver):
    sentence = use(python, broken_driver("abi99"))
    assert "contract version" in sentence and "rebuild it" in sentence


def test_a_library_without_the_symbol(python, broken_driver):
    assert "does not export npu_driver_get" in use(python, broken_driver("nosymbol"))


def test_a_driver_that_fails_to_start(python, broken_driver):
    sentence = use(python, broken_driver("noopen"))
    assert "could not be started" in sentence and "/dev/mychip0" in sentence


def test_one_bad_driver_of_two_is_named(python):
    assert '"nonsense"' in use(python, "cmodel,nonsense")


def test_two_drivers_at_once(python):
    code = """
        import torch
        x = torch.arange(3.0, device="npu:0")
        y = x.to("npu:1") + 1
        print(torch.npu.get_device_properties(0).driver, torch.npu.get_device_properties(1).driver, y.cpu().tolist())
    """
    lines = python(code, TORCH_NPU_DRIVER="cmodel,template", TORCH_NPU_FALLBACK="quiet").lines()
    assert lines == ["cmodel template [1.0, 2.0, 3.0]"]


# -- failures on the device --


def test_a_failing_command_in_the_middle_of_a_stream(python):
    """The work around it runs, the next wait raises and names the op, and then the device goes on."""
    code = """
        import torch
        table = torch.arange(10.0, device="npu")
        index = torch.tensor([1, 99], device="npu")
        before = table + 1
        try:
            bad = table.index_select(0, index)
            after = table + 2
            torch.npu.synchronize()
            print("nothing raised")
        except (IndexError, RuntimeError) as error:
            print(type(error).__name__, "index" in str(error))
        print(before.sum().item(), (table + 2).sum().item())
    """
    kind, sums = python(code, TORCH_NPU_FALLBACK="quiet").lines()
    assert kind in ("IndexError True", "RuntimeError True", "AcceleratorError True")
    assert sums == "55.0 65.0"


ASYNCHRONOUS = """
    import torch
    x = torch.ones(4, device="npu")
    try:
        for step in range(10):
            x * 3
        print("all launched")
        torch.npu.synchronize()
    except RuntimeError as error:
        print(type(error).__name__, "|", str(error).splitlines()[0])
    torch.npu.synchronize()
    print((x + 1).cpu().tolist())
"""


def test_an_asynchronous_failure_surfaces_at_the_next_wait(python, broken_driver):
    driver = broken_driver("failing") + ":fail_at=5"
    launched, error, after = python(ASYNCHRONOUS, TORCH_NPU_DRIVER=driver).lines()
    assert launched == "all launched"
    assert "AcceleratorError" in error and "mul" in error and "TORCH_NPU_BLOCKING=1" in error
    assert after == "[2.0, 2.0, 2.0, 2.0]"


def test_blocking_launches_raise_at_the_op(python, broken_driver):
    driver = broken_driver("failing") + ":fail_at=5"
    error, after = python(ASYNCHRONOUS, TORCH_NPU_DRIVER=driver, TORCH_NPU_BLOCKING="1").lines()
    assert "AcceleratorError" in error and "mul" in error
    assert after == "[2.0, 2.0, 2.0, 2.0]"


def test_values_that_only_the_cpu_checks_have_a_defined_result():
    """docs/design/dispatch.md, "What can fail": the host would have to wait."""
    p, zero = torch.tensor([2.0, -1.0], device="npu"), torch.zeros(2, dtype=torch.int64, device="npu")
    assert torch.nn.functional.binary_cross_entropy(p, torch.ones_like(p)).isnan()
    assert torch.bernoulli(p).tolist() == [1, 0]
    for divide in (torch.floor_divide, torch.remainder, torch.fmod):
        assert divide(zero + 7, zero).tolist() == [0, 0]
    assert device_works()


@pytest.mark.parametrize("make", [lambda x: x.npu(), lambda x: torch.empty_like(x, device="npu")])
def test_quantized_tensors_are_refused_by_that_name(make):
    with pytest.raises(NotImplementedError, match="cannot hold quantized tensors"):
        make(torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8))
    with pytest.raises(NotImplementedError, match="strided or sparse, got a quantized one"):
        torch.quantize_per_tensor(torch.ones(3, device="npu"), 0.1, 0, torch.qint8)
    assert device_works()


def test_sending_a_tensor_to_another_process_says_what_to_send():
    x = torch.ones(3, device="npu").share_memory_()  # nothing to do, as on cuda
    for what in (x, torch.nn.Parameter(x), torch.nn.Linear(2, 2).npu()):
        with pytest.raises(RuntimeError, match=r"npu tensors cannot be sent to another process: send tensor.cpu\(\)"):
            ForkingPickler.dumps(what)
    assert pickle.loads(ForkingPickler.dumps(x.cpu())).tolist() == [1, 1, 1]


# -- the fallback --


def test_fallback_can_be_forbidden():
    import torch_npu

    x = torch.ones(3, 3, device="npu")
    torch_npu.fallback.reset()
    with torch_npu.fallback.mode("error"), pytest.raises(RuntimeError, match="linalg_svd|TORCH_NPU_FALLBACK"):
        torch.linalg.svdvals(x)
    assert torch_npu.fallback.report() == {"aten::_linalg_svd.U": 1} and torch_npu.fallback.get_mode() == "quiet"


def test_fallback_is_counted_per_op_and_reset():
    import torch_npu

    torch_npu.fallback.reset()
    torch.linalg.svdvals(torch.ones(3, 3, device="npu"))
    report = torch_npu.fallback.report()
    assert any("linalg_svd" in name for name in report) and all(count >= 1 for count in report.values())
    torch_npu.fallback.reset()
    assert torch_npu.fallback.report() == {}


def test_an_unknown_fallback_mode_lists_the_known_ones():
    import torch_npu

    with pytest.raises((RuntimeError, ValueError), match="warn.*quiet.*error"):
        torch_npu.fallback.set_mode("nonsense")


def test_native_commands_are_counted(cmodel):
    import torch_npu

    a = torch.ones(8, 8, device="npu")
    with torch_npu.native.counting() as counts:
        a @ a
    report = torch_npu.native_report()
    assert any("mm" in name for name in report) and counts == report
    a @ a
    assert torch_npu.native_report() == report == counts
