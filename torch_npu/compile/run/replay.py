"""mode="reduce-overhead": a compiled graph is captured at its second call and replayed from then on.

A replay writes where the capture wrote, so a compiled graph is replayed only if nobody holds results of its last
replay; else, and whenever else a capture does not fit the call, the graph simply runs."""

import functools
import logging
import operator
from collections.abc import Callable

import torch
from torch._inductor import cudagraph_utils, output_code, utils
from torch.multiprocessing.reductions import StorageWeakRef

from torch_npu import _C

log = logging.getLogger(__name__)
aten = torch.ops.aten

MAX_RECORDINGS = 32  # of one compiled graph, for different sizes
PATIENCE = 2  # the graph is captured again at the second call in a row with other static addresses


class Unfit(Exception):
    """This call cannot be captured; the text says why."""


class Recording:
    """One capture: where it reads and writes."""

    def __init__(self, call: Callable, inputs: list, fixed: bytes):
        if not all(x.device.type == "npu" or x.dim() == 0 for x in inputs if isinstance(x, torch.Tensor)):
            raise Unfit("an input lies on the CPU")
        static, self.copied = list(inputs), []
        for k, x in enumerate(inputs):
            if isinstance(x, torch.Tensor) and not fixed[k] and x.device.type == "npu":
                static[k] = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)
                self.copied.append((k, _unexpanded(static[k])))
        self.addresses = _C.addresses(inputs, fixed)
        self.misses = 0
        self.living: list[StorageWeakRef] = []
        self.graph = torch.npu.NPUGraph()
        with torch.npu.graph(self.graph):
            outputs = call(list(static))
        # What a forward pass saves may be an input: a parameter as it is, of other inputs the copy.
        given = {id(x): k for k, x in enumerate(static) if fixed[k]}
        self.outputs = [(y, given.get(id(y))) for y in outputs]

    def is_free(self) -> bool:
        return all(storage.expired() for storage in self.living)

    def replay(self, inputs: list):
        for k, static in self.copied:
            static.copy_(_unexpanded(inputs[k]))
        self.graph.replay()
        results, self.living = [], []
        for y, given in self.outputs:
            if given is not None:
                y = inputs[given]
            elif isinstance(y, torch.Tensor) and y.device.type == "cpu":
                y = y.clone()
            elif isinstance(y, torch.Tensor):
                y = _C.alias(y)
                self.living.append(StorageWeakRef(y.untyped_storage()))
            results.append(y)
        inputs.clear()
        return results


class Replayed:
    """A compiled graph that replays itself. `fixed`: inputs whose address is nearly always the same (parameters, what
    the forward pass saved), and inputs that are written."""

    def __init__(self, call: Callable, fixed: set[int]):
        self.call, self.fixed_inputs = call, fixed
        self.fixed = b""  # a byte for each input of a call
        self.recordings: dict[tuple, Recording | None] = {}

    def __call__(self, inputs: list):
        key = tuple(map(_number, _C.not_on_npu(inputs)))
        if key not in self.recordings:  # the first call runs, which also makes programs and fills caches
            if len(self.recordings) < MAX_RECORDINGS:
                self.recordings[key] = None
            return self.call(inputs)
        recording = self.recordings[key]
        if recording is not None and not self.fits(recording, inputs):
            if recording.misses < PATIENCE:
                return self.call(inputs)
            recording = None
        if recording is None and torch.npu.is_current_stream_capturing():
            return self.call(inputs)  # into the caller's own graph
        if recording is None:
            self.fixed = bytes(k in self.fixed_inputs for k in range(len(inputs)))
            try:
                recording = Recording(self.call, inputs, self.fixed)
            except (Unfit, RuntimeError) as reason:
                log.warning("a compiled graph runs without capture: %s", reason)
                self.recordings.pop(key)
                self.__class__ = Unreplayed
                return self.call(inputs)
            self.recordings[key] = recording
        return recording.replay(inputs)

    def fits(self, recording: Recording, inputs: list) -> bool:
        if recording.addresses != _C.addresses(inputs, self.fixed):
            recording.misses += 1
            return False
        recording.misses = 0
        return recording.is_free() and not torch.npu.is_current_stream_capturing()


class Unreplayed(Replayed):
    """A compiled graph that could not be captured."""

    def __call__(self, inputs: list):
        return self.call(inputs)


def _number(x):
    """A number of the call, which is part of the capture; so are those in tensors without dimensions on the CPU, as the
    random state that attention hands to its gradient. -0.0 is another number than 0.0."""
    if not isinstance(x, torch.Tensor):
        return x
    return repr(x.item()) if x.dim() == 0 and x.device.type == "cpu" else None


_ON_CPU = "npu_computes_on_cpu"
_CONSTANTS = (aten.full.default, aten.scalar_tensor.default, aten.lift_fresh_copy.default)


def note_what_runs_on_cpu(graph: torch.fx.GraphModule, compiled) -> None:
    """A capture would run it once and never again. Marks the compiled graph, which Inductor's cache keeps as it is."""
    for node in graph.graph.nodes:
        if node.op != "call_function" or node.target in (operator.getitem, *_CONSTANTS):
            continue
        made = [v for v in torch.utils._pytree.tree_leaves(node.meta.get("val")) if isinstance(v, torch.Tensor)]
        if made and all(v.device.type == "cpu" for v in made):
            setattr(compiled, _ON_CPU, True)
            return


def _unexpanded(x: torch.Tensor) -> torch.Tensor:
    """The tensor's elements once each, where dimensions repeat them."""
    for dim, stride in enumerate(x.stride()):
        if stride == 0 and x.size(dim) > 1:
            x = x.narrow(dim, 0, 1)
    return x


def install() -> None:
    """Inductor has graphs for cuda only: it refuses other devices when a graph is lowered, and applies its own then."""
    check = cudagraph_utils.check_multiple_devices_or_any_cpu_nodes

    @functools.wraps(check)
    def allow_npu(nodes_of_devices):
        types = {device.type for device in nodes_of_devices}
        return None if "npu" in types and types <= {"npu", "cpu", "meta"} else check(nodes_of_devices)

    cudagraph_utils.check_multiple_devices_or_any_cpu_nodes = allow_npu
    finish = output_code.CompiledFxGraph.post_compile

    @functools.wraps(finish)
    def replay_on_npu(self, example_inputs, constants, graph_kwargs):
        wanted = graph_kwargs.get("cudagraphs")
        if not wanted or "npu" not in self.device_types:
            return finish(self, example_inputs, constants, graph_kwargs)
        if getattr(self, _ON_CPU, False):
            log.warning("a compiled graph runs without capture: part of it runs on the CPU")
            return finish(self, example_inputs, constants, {**graph_kwargs, "cudagraphs": utils.BoxedBool(False)})
        # A box of our own: the given one is shared with the backward pass.
        finish(self, example_inputs, constants, {**graph_kwargs, "cudagraphs": utils.BoxedBool(False)})
        fixed = set(self.fx_kwargs.get("static_input_idxs") or ()) | set(self.mutated_input_idxs)
        log.info("static inputs %s of %d", sorted(fixed), len(example_inputs))
        self.current_callable = Replayed(self.current_callable, fixed)

    output_code.CompiledFxGraph.post_compile = replay_on_npu
