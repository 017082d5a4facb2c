"""torch.compile(backend="npu"): the default backend by the device's name."""


def npu(graph, example_inputs, **options):
    """Inductor, which generates programs for npu tensors and what it always does for others."""
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(graph, example_inputs, **options)


def register() -> None:
    from torch._dynamo.backends.registry import register_backend

    register_backend(npu, name="npu")


register()
