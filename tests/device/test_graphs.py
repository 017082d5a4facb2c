"""Captured graphs: what is recorded, what a replay computes, whose memory it is, and what is refused."""

import gc

import pytest
import torch
from torch import nn

import torch_npu


def small_net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.25), nn.Linear(16, 4)).to("npu")


def test_a_training_step_with_dropout_follows_eager_exactly():
    data = [(torch.randn(32, 8), torch.randint(4, (32,))) for _ in range(6)]

    def eager():
        net = small_net()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.05, capturable=True)
        torch.manual_seed(7)
        losses = []
        for x, t in data:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x.to("npu")), t.to("npu"))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def replayed():
        net = small_net()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.05, capturable=True)
        x, t = torch.empty(32, 8, device="npu"), torch.zeros(32, dtype=torch.long, device="npu")
        start = [p.detach().clone() for p in net.parameters()]
        side = torch.npu.Stream()
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):  # makes the gradients and the optimizer's state
            nn.functional.cross_entropy(net(x), t).backward()
            optimizer.step()
        torch.npu.current_stream().wait_stream(side)
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            optimizer.zero_grad(set_to_none=False)
            loss = nn.functional.cross_entropy(net(x), t)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            for p, s in zip(net.parameters(), start, strict=True):
                p.copy_(s)
            for state in optimizer.state.values():
                for value in state.values():
                    value.zero_()
        torch.manual_seed(7)
        losses = []
        for given, target in data:
            x.copy_(given)
            t.copy_(target)
            graph.replay()
            losses.append(loss.item())
        return losses

    assert replayed() == eager()


def test_random_numbers_go_on_from_the_generator():
    own = torch.Generator("npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        a = torch.rand(5, device="npu")
        b = torch.randn(5, device="npu", generator=own)
        c = torch.rand(5, device="npu")
    torch.manual_seed(3)
    own.manual_seed(4)
    seen = []
    for _ in range(3):
        graph.replay()
        seen.append(torch.cat([a, b, c]).cpu())
    torch.manual_seed(3)
    own.manual_seed(4)
    for numbers in seen:
        parts = [torch.rand(5, device="npu"), torch.randn(5, device="npu", generator=own), torch.rand(5, device="npu")]
        assert torch.equal(numbers, torch.cat(parts).cpu())


def test_streams_that_wait_for_the_capture_join_it():
    x = torch.ones(1000, device="npu")
    other = torch.npu.Stream()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        a = x * 2
        other.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(other):
            assert torch.npu.is_current_stream_capturing()
            b = a + 1
        torch.npu.current_stream().wait_stream(other)
        c = b * 10
    with torch.npu.stream(other):
        assert not torch.npu.is_current_stream_capturing()
    x.fill_(4)
    graph.replay()
    assert c.unique().tolist() == [90]


def test_memory_of_a_graph_is_its_own_until_it_dies():
    gc.collect()
    torch.npu.empty_cache()
    reserved = torch.npu.memory_reserved()
    x = torch.full((1 << 20,), 2.0, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        hidden = x + 1  # freed in the capture, and needed by every replay
        y = hidden * 2
        del hidden
    others = [torch.full((1 << 20,), 7.0, device="npu") for _ in range(4)]
    torch.npu.empty_cache()
    graph.replay()
    assert y[0].item() == 6
    assert all(bool((o == 7).all()) for o in others)
    del others, y, x
    graph.reset()
    torch.npu.empty_cache()
    assert torch.npu.memory_reserved() == reserved


def test_graphs_can_share_a_pool():
    x = torch.ones(1 << 16, device="npu")
    pool = torch.npu.graph_pool_handle()
    first, second = torch.npu.NPUGraph(), torch.npu.NPUGraph()
    with torch.npu.graph(first, pool=pool):
        y = x * 2
    before = torch.npu.memory_reserved()
    with torch.npu.graph(second, pool=pool):
        z = (y + 1).sum()
    assert first.pool() == second.pool() == pool
    assert torch.npu.memory_reserved() == before
    x.fill_(3)
    first.replay()
    second.replay()
    assert z.item() == 7 * (1 << 16)
    del y
    first.reset()
    second.replay()
    assert z.item() == 7 * (1 << 16)


@pytest.mark.skipif(not hasattr(torch.accelerator, "Graph"), reason="torch.accelerator.Graph is new in torch 2.12")
def test_the_accelerator_graph():
    x = torch.zeros(3, device="npu")
    graph = torch.accelerator.Graph()
    with torch.Stream("npu"), graph:
        x += 1
    for _ in range(3):
        graph.replay()
    assert x.tolist() == [3] * 3


def test_graphed_callables_give_eager_values_and_gradients():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6)).to("npu")
    x, other = torch.randn(5, 6, device="npu", requires_grad=True), torch.randn(5, 6, device="npu", requires_grad=True)

    def run(module):
        for p in net.parameters():
            p.grad = None
        other.grad = None
        out = module(other)
        out.square().sum().backward()
        return [out.detach().clone(), other.grad.clone(), *(p.grad.clone() for p in net.parameters())]

    expected = run(net)
    graphed = torch.npu.make_graphed_callables(net, (x,))
    assert graphed is net
    for got, want in zip(run(graphed), expected, strict=True):
        assert torch.equal(got, want)
    function = torch.npu.make_graphed_callables(lambda a, b: {"sum": a + b}, (x.detach(), x.detach()))
    assert torch.equal(function(other.detach(), other.detach())["sum"], other.detach() * 2)


def test_pinned_memory_is_read_at_each_replay_and_other_memory_once():
    pinned, plain = torch.ones(3).pin_memory(), torch.ones(3)
    x, y = torch.zeros(3, device="npu"), torch.zeros(3, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        x.copy_(pinned, non_blocking=True)
        y.copy_(plain)
    pinned.fill_(5)
    plain.fill_(5)
    graph.replay()
    assert x.tolist() == [5] * 3 and y.tolist() == [1] * 3


@pytest.mark.parametrize(
    "forbidden",
    [
        lambda x: x.sum().item(),
        lambda x: x.cpu(),
        lambda x: torch.linalg.eigvals(x),
        lambda x: torch.npu.synchronize(),
        lambda x: torch.npu.current_stream().synchronize(),
    ],
)
def test_what_the_host_would_have_to_wait_for_is_refused(forbidden):
    x = torch.eye(3, device="npu")
    with pytest.raises(RuntimeError, match="while a graph is captured"), torch.npu.graph(torch.npu.NPUGraph()):
        forbidden(x)
    assert not torch.npu.is_current_stream_capturing()
    assert (x + 1).sum().item() == 12


def test_misuse_is_explained():
    graph = torch.npu.NPUGraph()
    with pytest.raises(RuntimeError, match="torch.npu.graph"):
        graph.capture_begin()  # on the default stream
    with pytest.raises(RuntimeError, match="expected a captured graph to replay"):
        graph.replay()
    with pytest.raises(RuntimeError, match="capture_begin"):
        graph.capture_end()
    with torch.npu.graph(graph):
        torch.ones(2, device="npu")
    with pytest.raises(RuntimeError, match="reset"), torch.npu.graph(graph):
        pass
    graph.reset()
    with torch.npu.graph(graph):
        x = torch.ones(2, device="npu")
    graph.replay()
    assert x.tolist() == [1, 1]


def test_debug_dump_names_the_commands(tmp_path):
    x = torch.ones(4, 6, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        x.softmax(1)
    graph.debug_dump(str(tmp_path / "graph.txt"))
    assert "REDUCE aten::_softmax [4, 6]" in (tmp_path / "graph.txt").read_text()


def test_a_graph_that_dies_in_its_capture_ends_it():
    with torch.npu.stream(torch.npu.Stream()):
        graph = torch.npu.NPUGraph()
        graph.capture_begin()
        torch.ones(3, device="npu")
        del graph
        assert not torch.npu.is_current_stream_capturing()
        assert torch.ones(3, device="npu").tolist() == [1] * 3


def test_replays_count_as_native_ops():
    x = torch.ones(4, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        x + 1
    with torch_npu.native.counting():
        graph.replay()
        counts = torch_npu.native.report()
    assert counts == {"aten::add": 1}
