"""1. A device. torch.npu is to an NPU what torch.cuda is to a GPU; torch.accelerator is the same device without a name.

These ten files are a tour of what the other folders of tests/ hold in full; they are read in order of their numbers."""

import os

import torch


def test_device_count_and_current_device():
    assert torch.npu.device_count() >= 1
    assert torch.npu.is_available()
    assert torch.npu.current_device() == 0


def test_accelerator_is_the_npu():
    assert torch.accelerator.current_accelerator() == torch.device("npu")
    assert torch.accelerator.is_available()
    assert torch.accelerator.device_count() == torch.npu.device_count()
    assert torch.get_device_module("npu") is torch.npu
    assert torch.get_device_module() is torch.npu


def test_properties_name_and_capability():
    properties = torch.npu.get_device_properties(0)
    assert properties.total_memory == torch.npu.mem_get_info(0)[1]
    assert torch.npu.get_device_name("npu:0") == properties.name != ""
    assert torch.npu.get_device_capability() == (properties.major, properties.minor)
    assert properties.driver in os.environ["TORCH_NPU_DRIVER"]
