"""9. A graph. Commands are recorded once and replayed with one call."""

import torch


def test_a_capture_runs_nothing_and_a_replay_everything():
    x = torch.ones(4, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        assert torch.npu.is_current_stream_capturing()
        y = x * 3
        x += 1
    assert not torch.npu.is_current_stream_capturing()
    assert x.tolist() == [1] * 4
    assert len(graph) == 2
    for turn in range(1, 4):
        graph.replay()
        assert y.tolist() == [3 * turn] * 4
    x.copy_(torch.arange(4.0))
    graph.replay()
    assert y.tolist() == [0, 3, 6, 9]
