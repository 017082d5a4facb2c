"""6. A fallback. What the device does not have runs on the CPU: the result is right, and it is said and counted."""

import pytest
import torch

from torch_npu import fallback


@pytest.fixture(autouse=True)
def nothing_counted():
    fallback.reset()
    yield
    fallback.reset()


def test_result_is_on_the_device_with_the_values_of_the_cpu():
    x = torch.rand(3, 4) + 1
    got = torch.linalg.svdvals(x.to("npu"))
    assert got.device == torch.device("npu", 0)
    torch.testing.assert_close(got.cpu(), torch.linalg.svdvals(x))


def test_report_counts_per_op_with_overload_and_reset_clears_it():
    x = torch.rand(3, 3, device="npu")
    fallback.reset()
    assert fallback.report() == {}
    torch.linalg.svdvals(x)
    torch.linalg.svdvals(x)
    assert fallback.report() == {"aten::_linalg_svd.U": 2}
    torch.linalg.matrix_exp(x)
    assert fallback.report() == {"aten::_linalg_svd.U": 2, "aten::linalg_matrix_exp": 1}
    fallback.reset()
    assert fallback.report() == {}


def test_error_mode_raises_and_names_the_op():
    x = torch.rand(3, 3, device="npu")
    with (
        fallback.mode("error"),
        pytest.raises(NotImplementedError, match="aten::_linalg_svd.U .*TORCH_NPU_FALLBACK"),
    ):
        torch.linalg.svdvals(x)
    assert fallback.report() == {"aten::_linalg_svd.U": 1}
