"""The seams with torch: what of torch's this package replaces or adds to, each with its reason.

PyTorch has hooks for most of what a device needs. Where it has none, a function of torch's gets one of ours around it.
Nothing else in this package assigns to anything of torch's, so this is the list of what a new version of torch may
break: `python -m torch_npu doctor --seams` prints it, and docs/design/torch-seams.md is made of it.

    @torch_seams.replace("torch._inductor.utils", "is_big_gpu", why="it warns of small devices", until="it asks them")
    def check(original, index_or_device=0):
        ...
"""

import functools
import inspect
import itertools
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

_ORIGINAL = "_torch_npu_original"  # on a function of ours: what it replaced


@dataclass
class Seam:
    """`until`: the version of torch that needs it no more, as "2.13", or what torch would have to offer."""

    owner: str  # of torch's: a module, a class, or a table in one of them
    name: Any  # of an attribute, or a table's key
    kind: str  # "replaced", "held" (replaced for a while), or "extended"
    why: str
    until: str
    original: Any = None
    function: Any = None  # of ours: takes the original, then its arguments
    ours: Any = None  # what torch calls

    @property
    def place(self) -> str:
        if isinstance(self.name, str):
            return f"{self.owner}.{self.name}"
        return f"{self.owner}[{getattr(self.name, '__qualname__', self.name)}]"

    def find(self) -> Any:
        owner = pkgutil.resolve_name(self.owner)
        return owner[self.name] if isinstance(owner, dict) else getattr(owner, self.name)

    def put(self, value: Any) -> None:
        owner = pkgutil.resolve_name(self.owner)
        if isinstance(owner, dict):
            owner[self.name] = value
        else:
            setattr(owner, self.name, value)

    @contextmanager
    def held(self, value: Any) -> Iterator[None]:
        before = self.find()
        self.put(value)
        try:
            yield
        finally:
            self.put(before)

    def change(self) -> str:
        """What is not as our function expects it: it has the first parameters of torch's, by name, and takes whatever
        else there is as *args or **kwargs. Empty if all is well."""
        if self.function is None:
            return ""
        parameters = list(inspect.signature(self.function).parameters.values())[1:]
        expected = [p.name for p in parameters if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
        open_ended = len(expected) < len(parameters)
        found = inspect.signature(self.original).parameters
        got = list(itertools.takewhile(lambda name: found[name].kind is not Parameter.VAR_POSITIONAL, found))
        more = open_ended or len(found) <= len(expected)
        if more and got[: len(expected)] == expected[: len(got) if len(got) < len(found) else None]:
            return ""
        expected += ["..."] * open_ended
        return f"{self.place}: expected ({', '.join(expected)}), got ({', '.join(found)})"


seams: list[Seam] = []


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("+")[0].split(".")[:2])


def _is_over(until: str) -> bool:
    import torch

    return until[:1].isdigit() and version(torch.__version__) >= version(until)


def replace(owner: str, name: Any, *, why: str, until: str) -> Callable[[Callable], Callable]:
    """Decorates what torch calls instead: it gets the original in front of the arguments. Nothing happens where torch
    needs it no more."""
    seam = Seam(owner, name, "replaced", why, until)
    seams.append(seam)

    def place(function: Callable) -> Callable:
        if not _is_over(until):
            found = seam.find()
            # It is ours already where this package is imported for the second time.
            original = seam.original = getattr(found, _ORIGINAL, found)

            @functools.wraps(original)
            def ours(*args, **kwargs):
                return function(original, *args, **kwargs)

            setattr(ours, _ORIGINAL, original)
            seam.function, seam.ours = function, ours
            seam.put(ours)
        return function

    return place


def hold(owner: str, name: str, *, why: str, until: str) -> Seam:
    """For what is replaced for a while: `with seam.held(ours)`."""
    seams.append(Seam(owner, name, "held", why, until))
    return seams[-1]


def extend(owner: str, name: str, *, why: str, until: str) -> Any:
    """A list or table of torch's that the caller adds to."""
    seams.append(Seam(owner, name, "extended", why, until))
    return seams[-1].find()
