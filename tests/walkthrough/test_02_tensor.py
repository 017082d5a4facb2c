"""2. A tensor. Its memory lies on the device; views share it, as on the CPU, and only what is asked for comes back."""

import torch


def test_write_through_a_view_is_seen_in_the_base():
    base = torch.arange(12.0).reshape(3, 4).to("npu")
    base.t()[1].fill_(-1.0)
    base.unfold(1, 2, 2)[0, 0].copy_(torch.tensor([50.0, 51.0]))
    want = torch.arange(12.0).reshape(3, 4)
    want[:, 1] = -1.0
    want[0, :2] = torch.tensor([50.0, 51.0])
    torch.testing.assert_close(base.cpu(), want)


def test_torch_device_context_makes_tensors_there():
    with torch.device("npu:0"):
        assert torch.zeros(2).is_npu


def test_generated_module_method_moves_parameters_and_buffers():
    model = torch.nn.BatchNorm1d(2).npu()
    assert {t.device.type for t in (*model.parameters(), *model.buffers())} == {"npu"}
