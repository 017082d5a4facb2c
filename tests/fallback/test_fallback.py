"""Ops without an npu kernel: right device, right values, aliases kept, generators honoured, and all of it counted."""

import gc
import threading
import warnings

import pytest
import torch

from torch_npu import fallback


@pytest.fixture(autouse=True)
def _clean_report():
    fallback.reset()
    yield
    fallback.reset()


def test_a_cpu_scalar_first_does_not_pull_the_result_to_the_cpu():
    x = torch.rand(3)
    got = torch.special.zeta(torch.tensor(2.0), x.to("npu") + 1)
    assert got.device.type == "npu"
    torch.testing.assert_close(got.cpu(), torch.special.zeta(torch.tensor(2.0), x + 1))
    assert (1 - x.to("npu")).device.type == "npu"


def test_first_use_of_an_op_warns_once_in_plain_words():
    x = torch.rand(3, 3, device="npu")
    with fallback.mode("warn"), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.linalg.svdvals(x)
        torch.linalg.svdvals(x)
    texts = [str(w.message) for w in seen if "_linalg_svd" in str(w.message)]
    assert len(texts) == 1
    assert "ran on the CPU" in texts[0] and "fallback.report()" in texts[0] and "TORCH_NPU_FALLBACK=error" in texts[0]


def test_a_call_that_refuses_its_arguments_is_no_fallback():
    x = torch.rand(20, 20, device="npu")
    with fallback.mode("warn"), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError, match="int8"):
            torch._int_mm(x, x)
    assert not seen and fallback.report() == {}


def test_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="expected one of warn, quiet, error"):
        fallback.set_mode("loud")


def test_counts_of_two_threads_add_up():
    x = torch.rand(3, 3, device="npu")
    fallback.reset()
    threads = [threading.Thread(target=lambda: [torch.linalg.svdvals(x) for _ in range(50)]) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert fallback.report() == {"aten::_linalg_svd.U": 200}


def test_in_place_op_writes_the_original_and_returns_it():
    x = torch.rand(4, device="npu") + 1
    want = x.cpu().lgamma_()
    y = x.lgamma_()
    assert y is x
    torch.testing.assert_close(x.cpu(), want)


def test_in_place_op_on_a_strided_view_touches_only_the_view():
    base = torch.rand(4, 6) + 1
    on = base.to("npu")
    on[:, ::2].lgamma_()
    base[:, ::2].lgamma_()
    torch.testing.assert_close(on.cpu(), base)


def test_arguments_that_share_memory_still_do():
    x = torch.rand(3, 3).tril() + torch.eye(3)
    on = x.to("npu")
    # The result is written over both inputs, which are one tensor, and seen in them on the way: not the identity.
    for tensor in (on, x):
        torch.linalg.solve_triangular(tensor, tensor, upper=False, out=tensor)
    assert "aten::linalg_solve_triangular.out" in fallback.report()
    assert x[2, 0] != 0
    torch.testing.assert_close(on.cpu(), x)


def test_written_argument_with_repeated_elements_is_refused_as_on_the_cpu():
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        torch.zeros(1, device="npu").expand(3).lgamma_()


@pytest.mark.parametrize("training", [True, False])
def test_running_statistics_of_batch_norm_are_updated_in_training_only(training):
    """native_batch_norm writes them without saying so in its schema."""
    cpu = torch.nn.BatchNorm2d(3).train(training)
    npu = torch.nn.BatchNorm2d(3).to("npu").train(training)
    x = torch.randn(4, 3, 5, 5) + 2
    torch.testing.assert_close(npu(x.to("npu")).cpu(), cpu(x))
    assert npu.running_mean.is_npu and npu.running_mean.cpu().any() == training
    for name, buffer in cpu.named_buffers():
        torch.testing.assert_close(npu.get_buffer(name).cpu(), buffer)
    mean, var = torch.zeros(3, device="npu"), torch.ones(3, device="npu")
    torch.batch_norm_update_stats(x.to("npu"), mean, var, 1.0)
    torch.testing.assert_close(mean.cpu(), x.mean((0, 2, 3)))


def test_an_empty_argument_may_lie_outside_of_its_storage():
    x = torch.arange(4.0).to("npu")
    assert torch.stack([x, x]).shape == (2, 4)
    assert torch.cat([x, x.as_strided((0,), (1,), 1 << 40)]).cpu().tolist() == [0, 1, 2, 3]


def test_out_argument_is_resized_and_returned():
    x = torch.rand(2, 3) + 1
    out = torch.empty(0, device="npu")
    got = torch.lgamma(x.to("npu"), out=out)
    assert got is out and out.shape == (2, 3)
    torch.testing.assert_close(out.cpu(), torch.lgamma(x))
    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        torch.lgamma(x.to("npu"), out=torch.empty(5, device="npu"))


def test_several_outputs_and_several_out_arguments():
    x = torch.rand(3, 3)
    u, s, v = torch.linalg.svd(x.to("npu"))
    assert {t.device.type for t in (u, s, v)} == {"npu"}
    torch.testing.assert_close((u * s) @ v, x.to("npu"), rtol=1e-4, atol=1e-4)
    values, indices = torch.empty(0, device="npu"), torch.empty(0, dtype=torch.int64, device="npu")
    torch.mode(x.to("npu"), out=(values, indices))
    torch.testing.assert_close(values.cpu(), torch.mode(x).values)


def test_lists_optional_lists_and_list_results():
    xs = [torch.rand(2, 2) for _ in range(3)]
    got = torch.block_diag(*[x.to("npu") for x in xs])
    torch.testing.assert_close(got.cpu(), torch.block_diag(*xs))
    x, index = torch.rand(4, 5), torch.tensor([3, 0])
    on = x.to("npu")
    torch.testing.assert_close(on[:, index.to("npu")].cpu(), x[:, index])
    torch.testing.assert_close(on[index].cpu(), x[index])  # indices may stay on the CPU
    on[None, index, None] = 7.0
    x[None, index, None] = 7.0
    torch.testing.assert_close(on.cpu(), x)
    grads = torch._foreach_lgamma([x.to("npu") + 1 for x in xs])
    torch.testing.assert_close([g.cpu() for g in grads], [torch.lgamma(x + 1) for x in xs])


def test_mixed_devices_are_refused_in_pytorchs_words():
    x = torch.rand(3, device="npu")
    text = "Expected all tensors to be on the same device, but found at least two devices, npu:0 and cpu!"
    with pytest.raises(RuntimeError, match=text):
        torch.special.zeta(x, torch.rand(3))
    with pytest.raises(RuntimeError, match=text):
        torch.linalg.solve_triangular(torch.eye(3, device="npu"), torch.rand(3, 3), upper=True)
    with pytest.raises(RuntimeError, match=text):
        torch.lgamma(x, out=torch.empty(3))
    with pytest.raises(RuntimeError, match=text):
        torch.index_select(x, 0, torch.tensor([1]))


def test_two_npu_devices_are_refused(two_devices):
    text = "found at least two devices, npu:0 and npu:1!"
    with pytest.raises(RuntimeError, match=text):
        torch.special.zeta(torch.rand(3, device="npu:0"), torch.rand(3, device="npu:1"))
    with pytest.raises(RuntimeError, match=text):
        torch.linalg.solve_triangular(torch.eye(3, device="npu:0"), torch.rand(3, 3, device="npu:1"), upper=True)


def test_results_stay_on_the_second_device(two_devices):
    x = torch.rand(3, device="npu:1")
    assert torch.special.zeta(x, x).device == torch.device("npu:1")
    assert torch.linalg.svdvals(torch.outer(x, x)).device == torch.device("npu:1")
    assert torch.randperm(5, device="npu:1").device == torch.device("npu:1")


def test_errors_of_the_op_keep_type_and_text():
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        torch.linalg.inv(torch.zeros(2, 2, device="npu"))
    with pytest.raises(IndexError, match="Dimension out of range"):
        torch.rand(2, device="npu").mode(3)


def test_memory_returns_after_a_failing_op():
    x = torch.zeros(64, 64, device="npu")
    gc.collect()
    before = torch.npu.memory_allocated()
    for _ in range(3):
        with pytest.raises(torch.linalg.LinAlgError):
            torch.linalg.inv(x)
    gc.collect()
    assert torch.npu.memory_allocated() == before


def test_a_view_op_without_a_kernel_is_refused():
    library = torch.library.Library("npu_test_views", "DEF")
    library.define("peek(Tensor(a) x) -> Tensor(a)")
    library.impl("peek", lambda x: x[:1], "CPU")
    with pytest.raises(NotImplementedError, match="npu_test_views::peek is a view op that has no npu kernel"):
        torch.ops.npu_test_views.peek(torch.rand(3, device="npu"))


def test_an_op_of_the_user_with_a_cpu_kernel_works():
    library = torch.library.Library("npu_test_ops", "DEF")
    library.define("scaled(Tensor x, Tensor? y, float f) -> (Tensor, Tensor)")
    library.impl("scaled", lambda x, y, f: (x * f, x.clone() if y is None else y * f), "CPU")
    x = torch.rand(3)
    a, b = torch.ops.npu_test_ops.scaled(x.to("npu"), None, 2.0)
    assert a.device.type == b.device.type == "npu"
    torch.testing.assert_close((a.cpu(), b.cpu()), (x * 2, x))


def test_seed_and_generator_fix_random_numbers():
    def draw(**kwargs):
        x = torch.empty(50, device="npu")
        return x.cauchy_(**kwargs).cpu()

    torch.npu.manual_seed(5)
    first, second = draw(), draw()
    assert not torch.equal(first, second)
    torch.npu.manual_seed(5)
    assert torch.equal(draw(), first) and torch.equal(draw(), second)
    one, two = (torch.Generator("npu").manual_seed(9) for _ in range(2))
    a, b = draw(generator=one), draw(generator=one)
    assert torch.equal(draw(generator=two), a) and torch.equal(draw(generator=two), b)
    with pytest.raises(RuntimeError, match="device type for generator"):
        draw(generator=torch.Generator())


def test_random_ops_do_not_disturb_the_cpu_generator():
    torch.manual_seed(3)
    want = torch.rand(5)
    torch.manual_seed(3)
    torch.nn.functional.dropout(torch.ones(100, device="npu"), 0.5)
    torch.empty(50, device="npu").cauchy_()
    assert torch.equal(torch.rand(5), want)


def test_dropout_follows_the_npu_seed():
    x = torch.ones(1000, device="npu")
    torch.npu.manual_seed(1)
    a, b = torch.nn.functional.dropout(x, 0.5), torch.nn.functional.dropout(x, 0.5)
    torch.npu.manual_seed(1)
    assert torch.equal(torch.nn.functional.dropout(x, 0.5).cpu(), a.cpu())
    assert not torch.equal(a.cpu(), b.cpu())
    assert 0.4 < (a.cpu() == 0).float().mean() < 0.6


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_layers_match_the_cpu(kind):
    torch.manual_seed(0)
    layer = kind(3, 5, num_layers=2, bidirectional=True)
    x = torch.randn(4, 2, 3)
    copy = kind(3, 5, num_layers=2, bidirectional=True).to("npu")
    copy.load_state_dict(layer.state_dict())
    a, b = x.clone().requires_grad_(), x.to("npu").requires_grad_()
    out, got = layer(a)[0], copy(b)[0]
    torch.testing.assert_close(got.cpu(), out, rtol=1e-4, atol=1e-5)
    out.square().sum().backward()
    got.square().sum().backward()
    torch.testing.assert_close(b.grad.cpu(), a.grad, rtol=1e-4, atol=1e-5)
    for p, q in zip(layer.parameters(), copy.parameters(), strict=True):
        torch.testing.assert_close(q.grad.cpu(), p.grad, rtol=1e-4, atol=1e-4)


def test_packed_sequences_match_the_cpu():
    torch.manual_seed(0)
    layer, x = torch.nn.LSTM(3, 4), torch.randn(5, 2, 3)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, [5, 3])
    want, _ = torch.nn.utils.rnn.pad_packed_sequence(layer(packed)[0])
    packed = torch.nn.utils.rnn.pack_padded_sequence(x.to("npu"), [5, 3])
    got, _ = torch.nn.utils.rnn.pad_packed_sequence(layer.to("npu")(packed)[0])
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_matches_the_cpu(causal):
    q, k, v = (torch.randn(2, 4, 6, 8, requires_grad=True) for _ in range(3))
    on = [t.detach().to("npu").requires_grad_() for t in (q, k, v)]
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    got = torch.nn.functional.scaled_dot_product_attention(*on, is_causal=causal)
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)
    want.sum().backward()
    got.sum().backward()
    torch.testing.assert_close(on[0].grad.cpu(), q.grad, rtol=1e-4, atol=1e-5)


def test_the_parts_of_sync_batch_norm_match_batch_norm():
    torch.manual_seed(0)
    x, weight, bias = torch.randn(6, 3, 4), torch.rand(3), torch.rand(3)
    a, w, c = (t.clone().requires_grad_() for t in (x, weight, bias))
    want = torch.nn.functional.batch_norm(a, None, None, w, c, training=True, eps=1e-5)
    grad = torch.randn(6, 3, 4)
    want.backward(grad)
    on = x.to("npu")
    # Two processes with two and four of the six rows.
    parts = [torch.batch_norm_stats(p, 1e-5) for p in (on[:2], on[2:])]
    mean, invstd = (torch.stack(t) for t in zip(*parts, strict=True))
    running = torch.zeros(3, device="npu"), torch.ones(3, device="npu")
    counts = torch.tensor([8.0, 16.0], device="npu")
    mean, invstd = torch.batch_norm_gather_stats_with_counts(on, mean, invstd, *running, 0.1, 1e-5, counts)
    got = torch.batch_norm_elemt(on, weight.to("npu"), bias.to("npu"), mean, invstd, 1e-5)
    torch.testing.assert_close(got.cpu(), want.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(running[0].cpu(), 0.1 * x.mean((0, 2)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(running[1].cpu(), 0.9 + 0.1 * x.var((0, 2)), rtol=1e-4, atol=1e-5)
    sums = torch.batch_norm_backward_reduce(grad.to("npu"), on, mean, invstd, weight.to("npu"), True, True, True)
    torch.testing.assert_close(sums[2].cpu(), w.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(sums[3].cpu(), c.grad, rtol=1e-4, atol=1e-4)
    total = torch.tensor([8, 16], dtype=torch.int32, device="npu")
    dx = torch.batch_norm_backward_elemt(grad.to("npu"), on, mean, invstd, weight.to("npu"), sums[0], sums[1], total)
    torch.testing.assert_close(dx.cpu(), a.grad, rtol=1e-4, atol=1e-5)


def test_sparse_tensors_of_a_device_that_is_not_current(two_devices):
    x = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    for s in (x.to("npu:1").to_sparse(), x.to_sparse().to("npu:1"), x.to("npu:1").to_sparse_csr()):
        assert s.device == torch.device("npu:1") and s.values().device == s.device
        assert (s * 2).clone().to_dense().cpu().tolist() == [[0, 4], [6, 0]]
    made = torch.sparse_coo_tensor(torch.tensor([[0], [1]]), torch.tensor([2.0]), (2, 2), device="npu:1")
    assert made.device == torch.device("npu:1") and torch.zeros_like(made).device == made.device


def test_compressed_sparse_tensors_compute_and_are_written_in_place():
    x = torch.tensor([[0.0, 2.0], [3.0, 0.0]], device="npu")
    s = x.to_sparse_csr()
    for result, expected in ((s @ x, [[6, 0], [0, 6]]), (s + s, [[0, 4], [6, 0]]), (-s, [[0, -2], [-3, 0]])):
        assert result.is_npu and result.to_dense().cpu().tolist() == expected
    assert s.mul_(2) is s and s.to_dense().cpu().tolist() == [[0, 4], [6, 0]]
    assert s.zero_().to_dense().count_nonzero() == 0


def test_sparse_tensors_go_to_the_device_and_back():
    x = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    for to in (torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr):
        s = to(x.to("npu"))
        assert s.device.type == "npu" and s.layout == to(x).layout
        torch.testing.assert_close(s.to_dense().cpu(), x)
        torch.testing.assert_close(s.cpu().to_dense(), x)


def test_autocast_casts_matrix_products_and_keeps_softmax_in_float():
    x = torch.rand(3, 3, device="npu")
    with torch.autocast("npu", dtype=torch.bfloat16):
        y = x @ x
        assert y.dtype == torch.bfloat16
        assert torch.softmax(y, -1).dtype == torch.float32
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            torch.nn.functional.binary_cross_entropy(torch.sigmoid(x), x)


def test_printing_a_tensor_is_not_a_fallback():
    x = torch.arange(2000.0).reshape(2, 1000).to("npu") + 0.5
    fallback.reset()
    assert "device='npu:0'" in repr(x)
    assert fallback.report() == {}
