"""Streams and events: order, overlap, time."""

import pytest
import torch

from tests.support.tensors import slow_work


def test_classes_extend_torchs_own():
    assert issubclass(torch.npu.Stream, torch.Stream) and issubclass(torch.npu.Event, torch.Event)


def test_new_streams_differ_from_the_default():
    stream = torch.npu.Stream()
    assert stream.device == torch.device("npu:0")
    assert stream != torch.npu.default_stream()
    assert torch.npu.current_stream() == torch.npu.default_stream()


def test_a_stream_is_a_context_manager():
    with torch.npu.Stream() as stream:
        assert torch.npu.current_stream() == stream
    assert torch.npu.current_stream() == torch.npu.default_stream()


def test_stream_context_restores_after_an_error():
    with pytest.raises(KeyError), torch.npu.stream(torch.npu.Stream()):
        raise KeyError
    assert torch.npu.current_stream() == torch.npu.default_stream()


def test_stream_context_with_none_changes_nothing():
    with torch.npu.stream(None):
        assert torch.npu.current_stream() == torch.npu.default_stream()


def test_stream_context_of_another_device(two_devices):
    stream = torch.npu.Stream("npu:1")
    with torch.npu.stream(stream):
        assert torch.npu.current_device() == 1
        assert torch.npu.current_stream() == stream
    assert torch.npu.current_device() == 0
    assert torch.npu.current_stream(1) == torch.npu.default_stream(1)


def test_set_stream():
    stream = torch.npu.Stream()
    torch.npu.set_stream(stream)
    try:
        assert torch.npu.current_stream() == stream
    finally:
        torch.npu.set_stream(torch.npu.default_stream())


def test_priorities():
    least, greatest = torch.npu.Stream.priority_range()
    assert greatest <= 0 <= least
    assert torch.npu.Stream(priority=greatest).priority == greatest
    assert torch.npu.Stream(priority=-1000).priority == greatest


def test_streams_hash_and_compare_as_values():
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        again = torch.npu.current_stream()
    assert again == stream and hash(again) == hash(stream) and len({again, stream}) == 1
    assert stream != "a stream"


def test_synchronize_waits_for_the_work():
    stream = torch.npu.Stream()
    x = slow_work(stream)
    stream.synchronize()
    assert stream.query()
    assert x.sum().item() == pytest.approx(512, rel=1e-3)


def test_two_streams_overlap(cmodel):
    """A long queue on one stream is still busy when short work on another, given later, is done."""
    first, second = torch.npu.Stream(), torch.npu.Stream()
    done = torch.npu.Event()
    x = slow_work(first, products=100)
    first.record_event(done)
    with torch.npu.stream(second):
        y = torch.ones(4, device="npu") + 1
    second.synchronize()
    overlapped = not done.query()
    assert y.cpu().tolist() == [2.0] * 4
    first.synchronize()
    assert overlapped, "the second stream's work waited for the first stream's"
    assert x.sum().item() == pytest.approx(512, rel=1e-3)


def test_the_host_does_not_wait_for_a_stream(cmodel):
    stream = torch.npu.Stream()
    slow_work(stream, products=100)
    event = stream.record_event()
    assert not event.query()
    event.synchronize()
    assert event.query()


def test_wait_event_orders_two_streams():
    producer, consumer = torch.npu.Stream(), torch.npu.Stream()
    x = slow_work(producer)
    consumer.wait_event(producer.record_event())
    with torch.npu.stream(consumer):
        y = x.clone()
    consumer.synchronize()
    assert y.sum().item() == pytest.approx(512, rel=1e-3)


def test_record_stream_keeps_memory_until_the_other_stream_is_done():
    side = torch.npu.Stream()
    gate = slow_work(side)
    x = torch.full((1 << 20,), 3.0, device="npu")
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        y = x + 1
    x.record_stream(side)
    del x
    noise = torch.zeros(1 << 20, device="npu")  # would take x's memory if it were free
    side.synchronize()
    assert y.cpu().unique().tolist() == [4.0]
    del gate, noise


def test_events_measure_time_up_to_a_generic_event():
    start, end = torch.npu.Event(enable_timing=True), torch.Event("npu", enable_timing=True)
    start.record()
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 0


def test_events_without_timing_refuse_to_measure():
    start, end = torch.npu.Event(), torch.npu.Event()
    start.record()
    end.record()
    end.synchronize()
    with pytest.raises(ValueError, match="enable_timing=True"):
        start.elapsed_time(end)


def test_events_that_were_not_recorded_refuse_to_measure():
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    start.record()
    with pytest.raises(RuntimeError, match="call record"):
        start.elapsed_time(end)


def test_an_event_that_was_never_recorded_is_done():
    event = torch.npu.Event()
    assert event.query()
    event.synchronize()
    torch.npu.current_stream().wait_event(event)
    torch.npu.synchronize()


def test_generic_torch_stream_and_event():
    stream = torch.Stream(device="npu")
    event = torch.Event(device="npu", enable_timing=True)
    with stream:
        x = torch.ones(8, device="npu") * 2
        event.record(stream)
    event.synchronize()
    assert x.cpu().tolist() == [2.0] * 8
    assert torch.accelerator.current_stream() == torch.npu.default_stream()


def test_backward_runs_on_the_streams_of_forward():
    x = torch.ones(64, 64, device="npu", requires_grad=True)
    stream = torch.npu.Stream()
    stream.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(stream):
        y = (x @ x).sum()
    y.backward()
    torch.npu.current_stream().wait_stream(stream)
    assert x.grad.cpu().unique().tolist() == [128.0]


def test_threads_have_their_own_current_stream():
    import threading

    seen = []
    with torch.npu.stream(torch.npu.Stream()):
        thread = threading.Thread(target=lambda: seen.append(torch.npu.current_stream()))
        thread.start()
        thread.join()
    assert seen == [torch.npu.default_stream()]


def test_interprocess_events_are_refused():
    with pytest.raises(RuntimeError, match="cannot be shared between processes"):
        torch.npu.Event(interprocess=True)
