"""4. A stream. The device works behind the host; streams run beside each other unless one waits for another."""

import pytest
import torch

from tests.support.tensors import slow_work


def test_stream_context_switches_and_restores():
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        assert torch.npu.current_stream() == stream
        assert torch.accelerator.current_stream() == stream
    assert torch.npu.current_stream() == torch.npu.default_stream()


def test_wait_stream_orders_two_streams():
    producer, consumer = torch.npu.Stream(), torch.npu.Stream()
    x = slow_work(producer)
    consumer.wait_stream(producer)
    with torch.npu.stream(consumer):
        total = x.sum()
    consumer.synchronize()
    assert producer.query()
    assert total.item() == pytest.approx(512, rel=1e-3)


def test_events_measure_time():
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    start.record()
    slow_work(torch.npu.current_stream())
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) > 0
