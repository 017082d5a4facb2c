"""Tensors for the cases: same numbers on both devices, in the layout that the case is about."""

import torch

SIZES = ("small", "medium", "large")


class Make:
    """Makes the tensors of one case for one device, type, size and layout.

    contiguous  row-major matrices
    strided     every second column of a wider matrix; a second operand is a transposed matrix
    broadcast   a second operand is one row
    """

    def __init__(self, device: str, dtype: torch.dtype, size: str, layout: str):
        self.device, self.dtype, self.size, self.layout = device, dtype, size, layout
        self._generator = torch.Generator().manual_seed(7)

    def pick(self, small, medium, large):
        return (small, medium, large)[SIZES.index(self.size)]

    @property
    def shape(self) -> tuple[int, int]:
        return self.pick((16, 64), (256, 512), (2048, 2048))

    def randn(self, *shape: int, grad: bool = False) -> torch.Tensor:
        made = torch.randn(*shape, generator=self._generator).to(self.dtype).to(self.device)
        return made.requires_grad_() if grad else made

    def ints(self, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(high, shape, generator=self._generator).to(self.device)

    def mask(self, *shape: int) -> torch.Tensor:
        return (torch.rand(*shape, generator=self._generator) < 0.5).to(self.device)

    def x(self, *shape: int) -> torch.Tensor:
        """The first operand, a matrix unless a shape is given."""
        shape = shape or self.shape
        if self.layout == "strided":
            return self.randn(*shape[:-1], 2 * shape[-1])[..., ::2]
        return self.randn(*shape)

    def y(self) -> torch.Tensor:
        """The second operand."""
        rows, columns = self.shape
        if self.layout == "strided":
            return self.randn(columns, rows).t()
        if self.layout == "broadcast":
            return self.randn(columns)
        return self.randn(rows, columns)

    def out(self) -> torch.Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device=self.device)

    def image(self) -> tuple[int, int, int, int]:
        return self.pick((1, 8, 16, 16), (4, 32, 32, 32), (16, 64, 56, 56))
