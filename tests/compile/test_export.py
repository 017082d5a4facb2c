"""torch.export."""

import torch
from torch import nn

import torch_npu


def test_export_with_a_free_batch_size_goes_through_a_file(tmp_path):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8)).to("npu")
    batch = torch.export.Dim("batch")
    exported = torch.export.export(network, (torch.randn(2, 4, device="npu"),), dynamic_shapes=({0: batch},))
    torch.export.save(exported, tmp_path / "network.pt2")
    loaded = torch.export.load(tmp_path / "network.pt2")
    x = torch.randn(7, 4, device="npu")
    torch_npu.fallback.reset()
    torch.testing.assert_close(loaded.module()(x), network(x))
    torch.testing.assert_close(exported.run_decompositions().module()(x), network(x))
    assert torch_npu.fallback.report() == {}
