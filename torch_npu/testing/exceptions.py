"""Failures that are understood and accepted. Fewer than ten, each with its reason; one that passes has to go."""

from __future__ import annotations

from typing import NamedTuple


class Accepted(NamedTuple):
    database: str
    name: str
    dtype: str
    reason: str


ACCEPTED: tuple[Accepted, ...] = ()
