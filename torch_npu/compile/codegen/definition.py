"""A kernel as generated code writes it down: a call of runtime.npu_kernel in Python, or, in a model that is compiled
ahead of time, a torch_npu_kernel_spec in C++ (csrc/aoti/torch_npu_aoti.h)."""

import dataclasses

KERNEL_NAME = "KERNEL_NAME"  # until the kernel has one


@dataclasses.dataclass(frozen=True)
class Definition:
    """Sizes, strides, offsets, parameters, k and geometry are integers, or texts that are among `numbers` of a call."""

    kind: str
    tensors: tuple[str, ...]
    sizes: tuple
    operands: list[tuple]  # (tensor, offset, strides)
    program: str
    numbers: tuple[str, ...] = ()
    params: tuple = ()
    inner: int = 0
    k: int | str | None = None  # of a matmul
    geometry: tuple = ()  # of a conv
    tune: bool = False  # which a model compiled ahead of time does not: its first call may be on another machine

    def python(self) -> str:
        extra = (f", inner={self.inner}" if self.inner else "") + (f", k={self.k!r}" if self.k is not None else "")
        extra += f", geometry={self.geometry!r}" if self.geometry else ""
        extra += ", tune=True" if self.tune else ""
        lines = [f"{self.kind!r}, tensors={self.tensors!r}, sizes={self.sizes!r}{extra}"]
        if self.numbers:
            lines.append(f"numbers={self.numbers!r}")
        if self.params:
            lines.append(f"params={self.params!r}")
        lines.append("operands=[" + ", ".join(map(repr, self.operands)) + "]")
        lines.append(f"program='''\n{self.program}'''" if self.program else "program=''")
        return f"npu_kernel({KERNEL_NAME!r}, " + ",\n    ".join(lines) + ")"

    def cpp(self) -> str:
        """A function that returns the kernel, which is made when it is first called."""
        slots = {n: k + 1 for k, n in enumerate(self.numbers)}

        def number(value) -> str:
            return f"{{0, {slots[value]}}}" if value in slots else f"{{{int(value)}}}"

        def numbers(values) -> str:
            return "{" + ", ".join(map(number, values)) + "}"

        def array(type: str, name: str, items) -> tuple[str, str]:
            """Its definition and its name: C++ has no arrays without elements."""
            return (f"  static const {type} {name}[] = {{{', '.join(items)}}};\n", name) if items else ("", "nullptr")

        places = {t: k for k, t in enumerate(self.tensors)}
        operands = [f"{{{places[t]}, {number(offset)}, {numbers(strides)}}}" for t, offset, strides in self.operands]
        arrays = [
            array("torch_npu_number", "sizes", [number(s) for s in self.sizes]),
            array("torch_npu_operand", "operands", operands),
            array("torch_npu_number", "params", [number(p) for p in self.params]),
            array("torch_npu_number", "geometry", [number(g) for g in self.geometry]),
        ]
        counts = [self.inner, len(self.tensors), len(self.numbers), len(self.sizes), len(operands), len(self.params)]
        fields = [f'"{KERNEL_NAME}"', f'"{self.kind}"', *map(str, counts), *(name for _, name in arrays[:3])]
        fields += [number(0 if self.k is None else self.k), f'R"npu({self.program})npu"']
        fields += [str(len(self.geometry)), arrays[3][1]]
        return (
            f"static const torch_npu::Kernel& {KERNEL_NAME}() {{\n"
            + "".join(definition for definition, _ in arrays)
            + f"  static const torch_npu::Kernel kernel({{sizeof(torch_npu_kernel_spec), {', '.join(fields)}}});\n"
            + "  return kernel;\n}"
        )
