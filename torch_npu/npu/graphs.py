"""Captured graphs, with torch.cuda's names: the commands of a piece of code, recorded once and replayed by one call."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

import torch
from torch.utils import _pytree as pytree

from torch_npu import _C
from torch_npu.npu._lazy import _lazy_init
from torch_npu.npu.device import synchronize
from torch_npu.npu.memory import empty_cache
from torch_npu.npu.streams import Stream, current_stream, stream


def is_current_stream_capturing() -> bool:
    """Is work given to the current stream recorded into a graph at the moment?"""
    return _C.is_current_stream_capturing()


def graph_pool_handle() -> tuple[int, int]:
    """A name for a memory pool that several graphs share, if they are replayed in the order of their captures."""
    return _C.graph_pool_handle()


class NPUGraph(_C._NPUGraph):
    """The commands that a stream would have run between `capture_begin` and `capture_end`. Use `torch.npu.graph`.

    Replaying costs one call. It reads and writes the addresses of the capture: put new inputs into the tensors that
    were captured (`static_input.copy_(x)`), and keep those tensors alive. Random numbers go on from where their
    generator is. `len(graph)` is the number of commands and copies.
    """

    def __init__(self, keep_graph: bool = False):
        _lazy_init()
        super().__init__()

    def capture_begin(self, pool: tuple[int, int] | None = None, capture_error_mode: str = "global") -> None:
        """Records the current stream from now on. `capture_error_mode` is there for torch.cuda's sake: a stream is
        captured, whichever thread gives work to it."""
        if capture_error_mode not in ("global", "thread_local", "relaxed"):
            raise RuntimeError(
                "expected a capture_error_mode of global, thread_local or relaxed, got " + repr(capture_error_mode)
            )
        super().capture_begin(pool=pool)

    def instantiate(self) -> None:
        """Nothing is left to do after a capture."""

    def register_generator_state(self, generator: torch.Generator) -> None:
        """Nothing is left to do: a generator that is used in a capture is found there."""

    def enable_debug_mode(self) -> None:
        """`debug_dump` works without it."""


class graph:
    """Context manager that captures work into an `NPUGraph`, on a stream of its own unless one is given."""

    default_capture_stream: Stream | None = None

    def __init__(
        self,
        npu_graph: NPUGraph,
        pool: tuple[int, int] | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
    ):
        if stream is None:
            if graph.default_capture_stream is None:
                graph.default_capture_stream = Stream()
            stream = graph.default_capture_stream
        self.npu_graph = npu_graph
        self.pool = pool
        self.capture_stream = stream
        self.capture_error_mode = capture_error_mode

    def __enter__(self) -> None:
        synchronize()
        gc.collect()
        empty_cache()
        self.stream_context = stream(self.capture_stream)
        self.stream_context.__enter__()
        try:
            self.npu_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self.stream_context.__exit__(None, None, None)
            raise

    def __exit__(self, *exc_info) -> None:
        try:
            self.npu_graph.capture_end()
        finally:
            self.stream_context.__exit__(*exc_info)


class _Graphed:
    """A callable whose forward and backward pass are captured, on static tensors of the sample arguments' form."""

    def __init__(self, function: Callable, args: tuple, warmup: int, pool: tuple[int, int], unused_ok: bool):
        flat, self.spec = pytree.tree_flatten(args)
        if not all(isinstance(x, torch.Tensor) for x in flat):
            raise TypeError(
                "expected tensors, or containers of tensors, as sample_args, got "
                + ", ".join(sorted({type(x).__name__ for x in flat if not isinstance(x, torch.Tensor)}))
            )
        self.inputs = tuple(flat)
        self.parameters = tuple(function.parameters()) if isinstance(function, torch.nn.Module) else ()
        self.function = function
        self.pool = pool
        self.wanted = [x for x in self.inputs + self.parameters if x.requires_grad]
        side = Stream()
        side.wait_stream(current_stream())
        with stream(side):
            for _ in range(warmup):
                outputs = [y for y in pytree.tree_leaves(function(*args)) if y.requires_grad]
                if outputs and self.wanted:
                    grads = [torch.zeros_like(y) for y in outputs]
                    torch.autograd.grad(outputs, self.wanted, grads, allow_unused=unused_ok)
        current_stream().wait_stream(side)
        self.args = args
        self.unused_ok = unused_ok

    def capture_forward(self) -> None:
        self.forward = NPUGraph()
        with graph(self.forward, pool=self.pool):
            results = self.function(*self.args)
        flat, self.result_spec = pytree.tree_flatten(results)
        self.outputs = tuple(flat)

    def capture_backward(self) -> None:
        self.backward: NPUGraph | None = None
        self.output_grads = tuple(torch.empty_like(y) if y.requires_grad else None for y in self.outputs)
        outputs = [y for y in self.outputs if y.requires_grad]
        if outputs and self.wanted:
            self.backward = NPUGraph()
            with graph(self.backward, pool=self.pool):
                grads = torch.autograd.grad(
                    outputs,
                    self.wanted,
                    [g for g in self.output_grads if g is not None],
                    allow_unused=self.unused_ok,
                )
        found = iter(grads) if self.backward else iter(())
        self.input_grads = tuple(
            next(found) if x.requires_grad and self.backward else None for x in self.inputs + self.parameters
        )
        self.outputs = tuple(y.detach() for y in self.outputs)

    def as_function(self) -> Callable:
        owner = self

        class Replayed(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *inputs):
                for static, given in zip(owner.inputs, inputs, strict=False):
                    if static.data_ptr() != given.data_ptr():
                        static.copy_(given)
                owner.forward.replay()
                return tuple(y.detach() for y in owner.outputs)

            @staticmethod
            @torch.autograd.function.once_differentiable
            def backward(ctx, *grads):
                for static, given in zip(owner.output_grads, grads, strict=True):
                    if static is not None and given is not None and static.data_ptr() != given.data_ptr():
                        static.copy_(given)
                assert owner.backward is not None
                owner.backward.replay()
                return tuple(g.detach() if g is not None else None for g in owner.input_grads)

        def call(*args):
            flat, spec = pytree.tree_flatten(args)
            if spec != owner.spec:
                raise TypeError(f"expected arguments of the form {owner.spec}, as in sample_args, got {spec}")
            results = Replayed.apply(*flat, *owner.parameters)
            return pytree.tree_unflatten(results, owner.result_spec)

        return call


def make_graphed_callables(
    callables: Callable | tuple[Callable, ...],
    sample_args: Sequence,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: tuple[int, int] | None = None,
) -> Callable | tuple[Callable, ...]:
    """Functions or modules whose forward and backward passes are graphs, as torch.cuda.make_graphed_callables.

    `sample_args` are tensors of the shapes that the callables will be called with; for several callables, one tuple
    each, in the order in which they will be called.
    """
    if torch.is_autocast_enabled("npu") and torch.is_autocast_cache_enabled():
        raise RuntimeError(
            "expected autocast without its cache around a capture: torch.autocast(..., cache_enabled=False)"
        )
    single = not isinstance(callables, tuple)
    functions = callables if isinstance(callables, tuple) else (callables,)
    samples = (tuple(sample_args),) if single else tuple(sample_args)
    pool = graph_pool_handle() if pool is None else pool
    synchronize()
    made = [
        _Graphed(f, args, num_warmup_iters, pool, allow_unused_input)
        for f, args in zip(functions, samples, strict=True)
    ]
    synchronize()
    # The order of a training step, so that the graphs can share memory: forwards, then backwards from the last on.
    for one in made:
        one.capture_forward()
    for one in reversed(made):
        one.capture_backward()

    def finish(one: _Graphed) -> Callable:
        call = one.as_function()
        if not isinstance(one.function, torch.nn.Module):
            return call
        module, training, original = one.function, one.function.training, one.function.forward
        module.forward = lambda *args: call(*args) if module.training == training else original(*args)
        return module

    results = tuple(finish(one) for one in made)
    return results[0] if single else results
