"""What generated code imports: kernels and memory."""

from torch_npu import _C

empty_strided_npu = _C.empty_strided
has_layout = _C.has_layout


def npu_kernel(
    name, kind, *, tensors, sizes, operands, program, numbers=(), params=(), inner=0, k=0, geometry=(), tune=False
):
    """A function of `tensors`, then `numbers`, that submits one command.

    Sizes, strides, offsets and parameters are integers, or names of `numbers`, which come with each call. An operand is
    (tensor, offset, strides), in the order of the program's operands. `inner` dimensions are folded; `k` is the depth
    of a product, `geometry` what a convolution has (csrc/aten/compiled/compiled.h). A launch costs one C++ call. With
    `tune` the first one measures the driver's choices."""
    tuner = None
    if tune:
        from torch_npu.compile.run import autotune

        tuner = autotune.expect()
    slots = {n: f"#{k}" for k, n in enumerate(numbers)}
    places = {t: k for k, t in enumerate(tensors)}

    def known(values):
        return [slots.get(v, v) for v in values]

    operands = [(places[t], slots.get(offset, offset), known(strides)) for t, offset, strides in operands]
    return _C.compiled_kernel(
        *(name, kind, inner, len(tensors), len(numbers), known(sizes), operands, known(params), program),
        *(slots.get(k, k), known(geometry), tuner),
    )


def get_raw_stream(device_index: int) -> int:
    """Kernels take the current stream by themselves."""
    return 0


class device_guard:
    """torch.npu.device for an index that is known to be valid: nothing is looked at twice."""

    __slots__ = ("index", "before")

    def __init__(self, index: int):
        self.index = index

    def __enter__(self):
        self.before = _C.exchange_device(self.index)

    def __exit__(self, *exception):
        if self.before != self.index:
            _C.set_device(self.before)
