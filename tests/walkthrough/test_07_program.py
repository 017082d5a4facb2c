"""7. A program. What an op becomes can be seen: the log has a line for each op, and for each call of the driver."""

import re

import torch

from torch_npu.bench import networks


def test_the_log_of_a_lenet_forward_reads_like_a_story(log):
    model, x = networks.lenet().to("npu"), torch.randn(4, 1, 28, 28)
    lines = log(lambda: model(x.to("npu")))
    assert (
        lines
        == """\
[COPY] to [4x1x28x28] cpu -> npu:0
[NPU] convolution [4x1x28x28], [6x1x5x5], [6]
[NPU] relu [4x6x28x28]
[NPU] max_pool2d_with_indices [4x6x28x28]
[NPU] convolution [4x6x14x14], [16x6x5x5], [16]
[NPU] relu [4x16x10x10]
[NPU] max_pool2d_with_indices [4x16x10x10]
[VIEW] flatten
[VIEW] t
[NPU] addmm [120] + [4x400] @ [400x120]
[NPU] relu [4x120]
[VIEW] t
[NPU] addmm [84] + [4x120] @ [120x84]
[NPU] relu [4x84]
[VIEW] t
[NPU] addmm [10] + [4x84] @ [84x10]""".splitlines()
    )


def test_level_three_has_every_call_of_the_driver_and_the_last_line_is_the_one_that_runs(log):
    x = torch.ones(8, device="npu")
    x + x
    lines = log(lambda: x + x, level=3)
    at = lines.index("[NPU] add [8], [8]")
    assert re.fullmatch(r"    -> submit MAP aten::add\S* \[8\], npu:0 stream 0", lines[at + 1])
    assert lines[-1].startswith("-> device_synchronize")
