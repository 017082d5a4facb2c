"""torch.compile(mode="reduce-overhead"): graphs that replay themselves give what graphs that run give."""

import logging

import pytest
import torch
from torch import nn

import torch_npu


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def small_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 4)).to("npu")


@pytest.fixture
def replays(monkeypatch):
    """Counts replays of compiled graphs."""
    from torch_npu.compile.run import replay

    count = []
    original = replay.Recording.replay
    monkeypatch.setattr(replay.Recording, "replay", lambda self, inputs: (count.append(1), original(self, inputs))[1])
    return count


def train(mode: str) -> list[float]:
    net = small_net()
    compiled = torch.compile(net, mode=mode)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    targets = torch.arange(32, device="npu") % 4
    inputs = torch.Generator().manual_seed(1)
    torch.manual_seed(5)
    losses = []
    for _ in range(6):
        x = torch.randn(32, 16, generator=inputs).to("npu")  # another address each time
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(compiled(x), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_training_is_the_same_bit_for_bit(replays):
    expected = train("default")
    assert not replays
    torch._dynamo.reset()
    assert train("reduce-overhead") == expected
    assert len(replays) == 10  # forward and backward, from the second step on


def test_results_that_are_kept_stay_as_they_are(replays):
    net = small_net().eval()
    compiled = torch.compile(net, mode="reduce-overhead")
    with torch.no_grad():
        kept = [compiled(torch.full((2, 16), float(k), device="npu")) for k in range(6)]
        for k, y in enumerate(kept):
            torch.testing.assert_close(y, net(torch.full((2, 16), float(k), device="npu")))
        assert len(replays) == 1  # its result is alive, so later calls run
        del kept, y
        compiled(torch.zeros(2, 16, device="npu"))
        assert len(replays) == 2


def test_parameters_that_move_are_found(replays):
    net = small_net().eval()
    compiled = torch.compile(net, mode="reduce-overhead")
    x = torch.ones(2, 16, device="npu")
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
        for parameter in net.parameters():
            parameter.data = parameter.data * 2
        for _ in range(4):
            torch.testing.assert_close(compiled(x), net(x))
    assert len(replays) == 2 + 3  # one call ran, then it was captured again


def test_an_input_that_is_written(replays):
    def step(cache, x):
        cache += x
        return cache * 2

    compiled = torch.compile(step, mode="reduce-overhead")
    cache = torch.zeros(8, device="npu")
    for k in range(1, 6):
        assert compiled(cache, torch.ones(8, device="npu"))[0].item() == 2 * k
    assert cache[0].item() == 5
    assert len(replays) == 4


def test_dynamic_sizes_have_a_capture_each(replays):
    compiled = torch.compile(lambda x: (x * 2).sum(0), mode="reduce-overhead", dynamic=True)
    for size in (3, 5, 3, 5, 3):
        x = torch.ones(size, 4, device="npu")
        assert compiled(x).tolist() == [2 * size] * 4
    assert len(replays) == 3


def test_what_cannot_be_captured_runs_and_says_so_once(caplog, replays):
    compiled = torch.compile(lambda x: torch.linalg.eigvalsh(x + x.T) * 2, mode="reduce-overhead")
    x = torch.eye(3, device="npu")
    with caplog.at_level(logging.WARNING, logger="torch_npu.compile.run.replay"):
        for _ in range(4):
            assert torch.allclose(compiled(x).cpu(), torch.full((3,), 4.0))
    assert len([r for r in caplog.records if "without capture" in r.message]) == 1
    assert not replays
    assert torch_npu.fallback.report()


@pytest.mark.parametrize("how", ["reduce-overhead", "forward alone", "graphed"])
def test_dropout_of_attention_is_the_same_in_the_gradient(replays, how):
    """With zero scores and an identity for values the result is what dropout left, which the gradient must repeat."""

    def attention(q, v):
        return nn.functional.scaled_dot_product_attention(q, q, v, dropout_p=0.5)

    q = torch.zeros(1, 1, 64, 64, device="npu", requires_grad=True)
    v = torch.eye(64, device="npu")[None, None].requires_grad_()
    if how == "graphed":
        function = torch.npu.make_graphed_callables(attention, (q, v))
    else:
        function = torch.compile(attention, mode="reduce-overhead")
    seen = []
    for number in range(5):
        out = function(q, v)
        upstream = torch.randn(1, 1, 64, 64).npu()
        if how == "forward alone" and number == 3:  # the result is held, so the next forward pass is not replayed
            function(q, v)
        (gradient,) = torch.autograd.grad(out, v, upstream)
        kept = out.detach().cpu().clone()
        torch.testing.assert_close(gradient.cpu(), kept.mT @ upstream.cpu(), rtol=1e-4, atol=1e-4)
        seen.append(kept)
        del out
    assert all(not torch.equal(a, b) for a, b in zip(seen, seen[1:], strict=False))
    assert how == "graphed" or len(replays) >= 6


def test_what_runs_on_the_cpu_runs_every_time(replays):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.n = torch.zeros(())

        def forward(self, x):
            self.n.add_(1)
            return self.linear(x), self.n * 2

    model = Counts()
    model.linear.npu()
    compiled = torch.compile(model, mode="reduce-overhead")
    x = torch.ones(2, 4, device="npu")
    seen = []
    for _ in range(6):
        _, twice = compiled(x)
        seen.append(twice.item())
        twice.add_(100)
    assert seen == [2, 4, 6, 8, 10, 12] and model.n.item() == 6


def test_numbers_on_the_cpu_are_part_of_a_capture(replays):
    compiled = torch.compile(lambda x, s: x / s, mode="reduce-overhead")
    x = torch.ones(3, device="npu")
    for value in (2.0, 2.0, 2.0, 4.0, 4.0, 4.0, 0.0, 0.0, 0.0, -0.0, -0.0, -0.0):
        assert torch.equal(compiled(x, torch.tensor(value)).cpu(), torch.ones(3) / torch.tensor(value))
    assert replays


def test_a_held_result_outlives_its_capture():
    weight = torch.zeros(1, 1, 64, 64, device="npu")
    attend = torch.compile(
        lambda v: nn.functional.scaled_dot_product_attention(weight, weight, v, dropout_p=0.5), mode="reduce-overhead"
    )
    v = torch.eye(64, device="npu")[None, None].requires_grad_()
    for _ in range(3):
        attend(v).sum().backward()
    held = attend(v)
    kept = held.detach().cpu().clone()
    for _ in range(4):
        weight.data = torch.zeros(1, 1, 64, 64, device="npu")
        attend(v)
    torch._dynamo.reset()
    del attend
    upstream = torch.randn(1, 1, 64, 64)
    (gradient,) = torch.autograd.grad(held, v, upstream.npu())
    torch.testing.assert_close(gradient.cpu(), kept.mT @ upstream, rtol=1e-4, atol=1e-4)
