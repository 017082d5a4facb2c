"""torch.npu.FloatTensor and its siblings: the old way to name a dtype on a device.

torch makes such types for its own devices in C++ only; these behave the same where libraries still use them:
construction, isinstance, and Tensor.type().
"""

import torch

__all__: list[str] = []  # the types are names of torch.npu itself
_TYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "ShortTensor": torch.int16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "BoolTensor": torch.bool,
}


class _LegacyType(type):
    dtype: torch.dtype

    def __instancecheck__(cls, obj) -> bool:
        return isinstance(obj, torch.Tensor) and obj.device.type == "npu" and obj.dtype == cls.dtype

    def __call__(cls, *args, device=None):
        device = torch.device("npu") if device is None else torch.device(device)
        if len(args) == 1 and not isinstance(args[0], (int, torch.Size)):
            return torch.tensor(args[0], dtype=cls.dtype, device=device)
        size = args[0] if len(args) == 1 and isinstance(args[0], torch.Size) else args
        return torch.empty(size or (0,), dtype=cls.dtype, device=device)


def types() -> dict[str, "_LegacyType"]:
    """The types by name."""
    made = {}
    for name, dtype in _TYPES.items():
        members = {"dtype": dtype, "__module__": "torch.npu", "__qualname__": name}
        members |= {"is_npu": True, "layout": torch.strided}
        members["__doc__"] = f"The old name of {dtype} on npu: construction, isinstance and Tensor.type()."
        made[name] = _LegacyType(f"torch.npu.{name}", (), members)  # Tensor.type() looks at the whole name
    return made
