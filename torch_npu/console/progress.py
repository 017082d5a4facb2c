"""A progress bar on stderr, where stderr is a terminal; silent elsewhere."""

import sys
import time

WIDTH = 30


class Progress:
    """`lines`: without a terminal a line at every tenth of the work, for logs of what takes minutes."""

    def __init__(self, total: int, quiet: bool = False, lines: bool = False):
        self.total, self.done = total, 0
        self.shown = not quiet and sys.stderr.isatty()
        self.lines = lines and not quiet and not self.shown
        self.start = time.monotonic()

    def __enter__(self) -> "Progress":
        return self

    def step(self, text: str) -> None:
        """Work number `done` begins."""
        share = self.done / max(self.total, 1)
        if self.shown:
            left = (time.monotonic() - self.start) * (1 / share - 1) if share else 0
            time_left = f", {left:.0f} s left" if share else ""
            bar = "█" * round(WIDTH * share)
            sys.stderr.write(f"\r\x1b[K{bar:░<{WIDTH}} {f'{self.done}/{self.total}{time_left}: {text}'[:110]}")
            sys.stderr.flush()
        elif self.lines and int(10 * (self.done - 1) / self.total) < int(10 * share):
            print(f"{self.done}/{self.total}: {text}", file=sys.stderr, flush=True)
        self.done += 1

    def note(self, text: str) -> None:
        """A line that stays, above the bar."""
        self._clear()
        print(text, file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def __exit__(self, *_) -> None:
        self._clear()
