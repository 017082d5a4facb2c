"""PyTorch's OpInfos through torch.compile: the compiled op on the device against the plain op on the CPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations as infos

from torch_npu.testing.case import Form, Refused
from torch_npu.testing.ops import OpCase, _Call, _for_dtype, _Sample


class _CompiledCall(_Call):
    """The call on the device, compiled: as one graph, or as several where the CPU has several, too. What Inductor
    cannot compile on the CPU either is not held against us."""

    def run(self, seed: int) -> Any:
        if self.device == "cpu":
            return super().run(seed)
        try:
            return self.compiled(seed, fullgraph=True)
        except Exception as ours:
            # Dynamo looks into a tensor of one number while it traces, if the tensor is the CPU's. Of other devices the
            # number is unknown then, and ops that make a size or a place of it, such as narrow, break the graph.
            unknown_number = "PendingUnbackedSymbolNotFound" in str(ours)
            if not unknown_number and self.refusal(seed, fullgraph=True) is None:
                raise
        try:
            return self.compiled(seed, fullgraph=False)
        except Exception as ours:
            theirs = self.refusal(seed, fullgraph=False)
            if theirs is None:
                raise
            raise Refused(f"Inductor on the CPU: {type(theirs).__name__}: {theirs}") from ours

    def refusal(self, seed: int, fullgraph: bool) -> Exception | None:
        """What Inductor raises for the same call on the CPU."""
        try:
            _CompiledCall(self.sample, "cpu", wide=False).compiled(seed, fullgraph)
        except Exception as theirs:  # noqa: BLE001
            return theirs
        return None

    def compiled(self, seed: int, fullgraph: bool) -> Any:
        torch._dynamo.reset()
        function = self.op.get_op()
        torch.manual_seed(seed)
        call = torch.compile(lambda *args, **kwargs: function(*args, **kwargs), fullgraph=fullgraph)
        return call(self.input, *self.args, **self.kwargs)


class _CompiledSample(_Sample):
    def forms(self) -> list[Form]:
        return [Form("compiled", lambda device, wide: _CompiledCall(self, device, wide))]


class CompiledCase(OpCase):
    database = "compiled"

    def samples(self, grad: bool) -> Iterable[list[Form]]:
        for raw in self.op.sample_inputs("cpu", self.dtype, requires_grad=grad):
            yield _CompiledSample(self.op, raw).forms()


def compiled_cases(dtype: torch.dtype) -> dict[str, OpCase]:
    return _for_dtype(CompiledCase, infos.op_db, dtype)
