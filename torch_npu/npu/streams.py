"""Streams and events, with torch.cuda's names on top of torch.Stream and torch.Event."""

from __future__ import annotations

import torch

from torch_npu import _C
from torch_npu.npu._lazy import _lazy_init
from torch_npu.npu._utils import Device, _get_device_index
from torch_npu.npu.device import device as device_context
from torch_npu.npu.device import get_device_properties, set_device


class Stream(torch.Stream):
    """A queue of work on one device. `priority`: smaller is more urgent; out of range is moved into it."""

    def __new__(cls, device: Device = None, priority: int = 0, **kwargs):
        _lazy_init()
        if "stream_id" in kwargs:  # refers to a stream that exists
            return super().__new__(cls, **kwargs)
        index = _get_device_index(device, optional=True)
        return super().__new__(cls, device=torch.device("npu", index), priority=priority)

    @property
    def priority(self) -> int:
        """The smaller the number, the more urgent; 0 is normal."""
        return _C.stream_priority(self.stream_id, self.device_index)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The least and the greatest priority; the greatest is the smaller number."""
        properties = get_device_properties()
        return properties.least_priority, properties.greatest_priority

    @property
    def npu_stream(self) -> int:
        """The driver's handle."""
        return _C.stream_handle(self.stream_id, self.device_index)

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Records an event behind all work given so far; makes one if need be."""
        if event is None:
            event = Event()
        event.record(self)
        return event

    def wait_event(self, event: torch.Event) -> None:
        """Work given from now on waits for the event. The host does not."""
        event.wait(self)

    def wait_stream(self, stream: torch.Stream) -> None:
        """Work given from now on waits for all work given to `stream` so far. The host does not."""
        self.wait_event(stream.record_event())

    def __eq__(self, other) -> bool:
        return isinstance(other, torch.Stream) and super().__eq__(other)

    def __hash__(self) -> int:
        return hash((self.stream_id, self.device_index, self.device_type))

    def __repr__(self) -> str:
        return f"<torch.npu.Stream device={self.device} stream_id={self.stream_id}>"


class Event(torch.Event):
    """A mark in a stream: to wait for, to order streams with, to measure time (with enable_timing)."""

    _timing: bool

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False):
        if interprocess:
            raise RuntimeError("npu events cannot be shared between processes: interprocess must be False")
        _lazy_init()
        event = super().__new__(cls, device="npu", enable_timing=enable_timing, blocking=blocking)
        event._timing = enable_timing
        return event

    def record(self, stream: torch.Stream | None = None) -> None:
        super().record(current_stream() if stream is None else stream)

    def wait(self, stream: torch.Stream | None = None) -> None:
        super().wait(current_stream() if stream is None else stream)

    def elapsed_time(self, end_event: torch.Event) -> float:
        """Milliseconds from this event to `end_event`. Both were made with enable_timing and are reached."""
        if not (self._timing and getattr(end_event, "_timing", True)):  # a torch.Event does not tell
            raise ValueError("expected two events made with enable_timing=True, got one without")
        if not (self.event_id and end_event.event_id):
            raise RuntimeError("expected two recorded events, got one that was not: call record() first")
        if not (self.query() and end_event.query()):
            raise RuntimeError("expected two events that are reached, got one that is not: call synchronize() first")
        return _C.elapsed_time(self.event_id, end_event.event_id, self.device.index)

    def __repr__(self) -> str:
        return f"<torch.npu.Event {self.event_id:#x}>" if self.event_id else "<torch.npu.Event uninitialized>"


def _stream(facts: tuple[int, int, int]) -> Stream:
    stream_id, device_index, device_type = facts
    return Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)


def current_stream(device: Device = None) -> Stream:
    """The stream that the calling thread's work on `device` goes to."""
    _lazy_init()
    return _stream(_C.current_stream(_get_device_index(device, optional=True)))


def default_stream(device: Device = None) -> Stream:
    """The stream that a device's work goes to where nothing else was chosen."""
    _lazy_init()
    return _stream(_C.default_stream(_get_device_index(device, optional=True)))


def set_stream(stream: torch.Stream | None) -> None:
    """Makes `stream` and its device the calling thread's current ones. None changes nothing."""
    if stream is None:
        return
    set_device(stream.device)
    _C.set_stream(stream.stream_id, stream.device_index)


class StreamContext:
    """Work inside goes to `stream`. None changes nothing."""

    def __init__(self, stream: torch.Stream | None):
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is None:
            return
        self._before = current_stream()
        if self._before.device_index != self.stream.device_index:
            with device_context(self.stream.device):
                self._before_there = current_stream()
        else:
            self._before_there = self._before
        set_stream(self.stream)

    def __exit__(self, *exc) -> None:
        if self.stream is None:
            return
        set_stream(self._before_there)
        set_stream(self._before)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Context manager: work inside goes to `stream`."""
    return StreamContext(stream)
