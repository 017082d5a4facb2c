"""What of torch's is replaced: listed, as our functions expect it, still needed, and replaced nowhere else."""

import ast
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.flex_attention import flex_attention

import torch_npu
from torch_npu import torch_seams, version
from torch_npu.cli import doctor

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "torch_npu"
PAGE = ROOT / "docs" / "design" / "torch-seams.md"
aten = torch.ops.aten

doctor._load_seams()
SEAMS = {seam.place: seam for seam in torch_seams.seams}
REPLACED = [seam for seam in SEAMS.values() if seam.original is not None]


@pytest.mark.parametrize("seam", SEAMS.values(), ids=SEAMS)
def test_a_seam_exists_as_our_function_expects_it(seam):
    if seam.original is None and seam.kind == "replaced":
        pytest.skip(f"torch {seam.until} needs it no more")
    found = seam.find()
    assert found is seam.ours or seam.kind != "replaced"
    assert not seam.change()


@pytest.mark.parametrize("seam", SEAMS.values(), ids=SEAMS)
def test_a_seam_has_not_outlived_the_versions_that_need_it(seam):
    if seam.until[:1].isdigit():
        assert torch_seams.version(version.TORCH[0]) < torch_seams.version(seam.until), "remove it"


def test_a_function_of_torch_that_changed_is_told():
    def torchs(self, first, second):
        pass

    def changes(ours):
        return torch_seams.Seam("torch", "f", "replaced", "", "", original=torchs, function=ours).change()

    assert not changes(lambda original, self, first, second: 0)
    assert not changes(lambda original, self, *rest: 0)
    assert changes(lambda original, self, first: 0) == "torch.f: expected (self, first), got (self, first, second)"
    assert changes(lambda original, self, other, *rest: 0).startswith("torch.f: expected (self, other, ...), got (self")


def _assigned(tree: ast.Module):
    """Names below torch that a file assigns to, by `torch.x.y = ...` or setattr, whatever torch.x is called there."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {a.asname or a.name.split(".")[0]: a.name for a in node.names if a.name.split(".")[0] == "torch"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setattr":
            targets = [ast.Attribute(node.args[0], "...")]
        for target in targets:
            root = target
            while isinstance(root, ast.Attribute | ast.Subscript):
                root = root.value
            if root is not target and isinstance(root, ast.Name) and root.id in names:
                yield names[root.id], ast.unparse(target)


def test_nothing_of_torch_is_assigned_to_elsewhere():
    found = {
        (str(file.relative_to(PACKAGE)), target)
        for file in sorted(PACKAGE.rglob("*.py"))
        for _, target in _assigned(ast.parse(file.read_text()))
        if not target.startswith("lowering.lowerings[")  # the table that Inductor's backends fill
    }
    assert found == set()


def test_the_page_has_them_all():
    assert doctor.seams_table() in PAGE.read_text(), "python -m torch_npu doctor --seams"


def _dlpack(seam):
    with pytest.raises(ValueError, match="npu"):
        seam.original(torch.ones(1, device="npu"))


def _printing(seam):
    with torch_npu.native.counting():
        seam.original(torch.arange(8.0, device="npu"), 0)
    assert sum(torch_npu.native.report().values()) > 2


def _edges(seam):
    assert seam.original(torch.zeros(4000, device="npu")).device.type == "npu"


def _devices(seam):
    with pytest.raises(ValueError, match="npu"):
        seam.original(*[torch.zeros(1, 1, 4, 4, device="npu")] * 3)


def _flex(seam):
    q = torch.zeros(1, 1, 16, 16, device="npu")
    with seam.held(seam.original), pytest.raises(Exception, match="npu|Triton|triton"):
        torch.compile(flex_attention)(q, q, q)


def _layout(seam):
    mode = FakeTensorMode()
    mode.cache_enabled = False
    with mode:
        x = torch.empty(1, 4, 8, 8, device="npu").to(memory_format=torch.channels_last)
        w = torch.empty(4, 4, 3, 3, device="npu")
        args = (x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
        ours = aten.convolution.default(*args)
        with seam.held(seam.original):
            theirs = aten.convolution.default(*args)
    assert ours.stride() != theirs.stride()


def _graphs(seam):
    assert "npu" in str(seam.original({torch.device("npu:0"): None}))


def _triton(seam):
    torch._dynamo.reset()
    with torch._inductor.config.patch(force_disable_caches=True), seam.held(seam.original):
        with pytest.raises(Exception, match="(?i)triton"):
            torch.compile(lambda x: x.sin() + 1)(torch.ones(4, device="npu"))


def _layer_norm(seam):
    x, weight = (torch.ones(size, dtype=torch.bfloat16, device="npu") for size in ((4, 8), (8,)))
    assert seam.original(x, [8], weight, weight, 1e-5)[1].dtype != weight.dtype


def _batch_norm(seam):
    x, statistic = torch.ones(4, 8, device="npu"), torch.ones(8, device="npu")
    assert seam.original(x, None, None, statistic, statistic, False, 0.1, 1e-5, False)[1].numel() > 0


def _alignment(seam):
    assert list(seam.original([torch.ones(4, device="npu")], [])) == [0]


def _headers(seam):
    assert "torch_npu" not in seam.original("npu")[5]


def _optimizer_counts(seam):
    def step_of(compiled):
        p = torch.nn.Parameter(torch.ones(4, device="npu"))
        p.grad = torch.ones_like(p)
        optimizer = torch.optim.Adam([p])
        compiled(optimizer.step)()
        return optimizer.state[p]["step"].device.type

    torch._dynamo.reset()
    with seam.held(seam.original):
        assert step_of(torch.compile) == "cpu"


# What goes wrong without it, where that shows at once. The others decide about speed or need a machine that has CUDA.
NEEDED = {
    "torch.Tensor.__dlpack_device__": _dlpack,
    "torch._tensor_str._tensor_str": _printing,
    "torch._tensor_str.get_summarized_data": _edges,
    "torch.nn.attention.flex_attention._validate_device": _devices,
    "torch._higher_order_ops.flex_attention.flex_attention.python_key_table[FunctionalTensorMode]": _flex,
    "torch._subclasses.fake_impls.op_implementations_dict[aten::convolution]": _layout,
    "torch._inductor.cudagraph_utils.check_multiple_devices_or_any_cpu_nodes": _graphs,
    "torch._inductor.scheduler.Scheduler.create_backend": _triton,
    "torch._inductor.decomposition.decompositions[aten::native_layer_norm]": _layer_norm,
    "torch._decomp.decompositions.native_batch_norm_helper": _batch_norm,
    "torch._inductor.compile_fx.get_input_idxs_to_check": _alignment,
    "torch._inductor.cpp_builder.get_cpp_torch_device_options": _headers,
    "torch._dynamo.variables.optimizer.OptimizerVariable._set_capturable": _optimizer_counts,
}


@pytest.mark.parametrize("place", NEEDED)
def test_a_seam_is_still_needed(place):
    NEEDED[place](SEAMS[place])
