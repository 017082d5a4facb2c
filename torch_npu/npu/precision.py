"""torch.npu.matmul: how accurate products of float32 are."""

from torch_npu import _C


class _Matmul:
    """Settings of matrix products and convolutions."""

    @property
    def allow_bf16_reduced_precision(self) -> bool:
        """Whether a device may round the float32 inputs of matrix products and convolutions to bfloat16. Off at first.

        A driver that gains nothing by it computes as before: the C model does, `rtl` rounds.
        """
        return _C.reduced_products()

    @allow_bf16_reduced_precision.setter
    def allow_bf16_reduced_precision(self, allowed: bool) -> None:
        if not isinstance(allowed, bool):
            raise TypeError(f"expected allow_bf16_reduced_precision to be True or False, got {allowed!r}")
        _C.set_reduced_products(allowed)

    def __setattr__(self, name: str, value: object) -> None:
        if name != "allow_bf16_reduced_precision":
            raise AttributeError(f"expected allow_bf16_reduced_precision, got torch.npu.matmul.{name}")
        super().__setattr__(name, value)


matmul = _Matmul()
