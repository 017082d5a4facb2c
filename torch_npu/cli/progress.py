"""A progress bar on stderr, where stderr is a terminal; silent elsewhere."""

import sys
import time


class Progress:
    def __init__(self, total: int, quiet: bool = False):
        self.total, self.done = total, 0
        self.shown = not quiet and sys.stderr.isatty()
        self.start = time.monotonic()

    def __enter__(self) -> "Progress":
        return self

    def step(self, text: str) -> None:
        """Work number `done` begins."""
        if self.shown:
            share = self.done / self.total
            left = (time.monotonic() - self.start) * (1 / share - 1) if share else 0
            bar = "#" * round(30 * share)
            line = f"[{bar:30s}] {self.done}/{self.total}, {left:.0f} s left: {text}"
            sys.stderr.write("\r" + line[:100].ljust(100))
            sys.stderr.flush()
        self.done += 1

    def __exit__(self, *_) -> None:
        if self.shown:
            sys.stderr.write("\r" + " " * 100 + "\r")
            sys.stderr.flush()
