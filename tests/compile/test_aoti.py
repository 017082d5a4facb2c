"""Models compiled ahead of time: packages of AOTInductor run on npu, in Python and in a C++ program."""

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys

import pytest
import torch
from torch import nn

import torch_npu
from tests.support import ROOT, small_models
from tests.support.compiled import to_npu

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="AOTInductor compiles a library: needs g++")


def example():
    spec = importlib.util.spec_from_file_location("export", ROOT / "examples" / "aoti" / "export.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mlp():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 24), nn.Softmax(-1))
    return model, (torch.randn(8, 16),), {}, ({0: torch.export.Dim("batch", max=64)},)


def lenet():
    return example().lenet(), (example().ramps(4),), {}, ({0: torch.export.Dim("batch", min=1, max=64)},)


class Decides(nn.Module):
    """A condition, a loop and a number that come from values: they stay in the package."""

    def forward(self, x):
        x = torch.cond(x.sum() > 0, lambda t: t.sin() + 1, lambda t: t.cos() * 2, (x,))
        start = torch.zeros((), dtype=torch.int64, device=x.device)
        _, x = torch._higher_order_ops.while_loop(lambda k, t: k < 3, lambda k, t: (k + 1, t * 2), (start, x))
        return x * (x > 0).sum().item()


def decides():
    return Decides(), (torch.ones(4, 6),), {}, None


class Layer(nn.Module):
    """A layer of a decoder without cache, with its positions."""

    def __init__(self, decoder):
        super().__init__()
        self.layer, self.rotary = decoder.layers[0], decoder.rotary_emb

    def forward(self, hidden, positions):
        answer = self.layer(hidden, position_embeddings=self.rotary(hidden, positions), attention_mask=None)
        return answer[0] if isinstance(answer, tuple) else answer


def qwen2():
    torch.manual_seed(0)
    loss, _, _ = small_models.qwen2()
    return Layer(loss.model.model), (torch.randn(2, 24, 32), torch.arange(24)[None]), {}, None


def bert():
    torch.manual_seed(0)
    loss, _, inputs = small_models.bert()
    inputs.pop("labels")
    return Logits(loss.model), (), inputs, None


class Logits(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, **kwargs):
        return self.model(**kwargs).logits


@pytest.fixture(scope="module")
def packaged(tmp_path_factory):
    """Model, arguments, package by name; each is compiled once. As if Triton and a GPU were there, where Inductor wants
    to try kernels while it makes a package; and one of them by a compiler that links its library statically: that copy
    must not mix with the one of torch, or the package cannot even read its device's name."""
    folder, made = tmp_path_factory.mktemp("packages"), {}
    static = folder / "g++"
    static.write_text(f"""#!/bin/sh
case " $* " in *" -shared "*) set -- "$@" -static-libstdc++;; esac
exec {shutil.which("g++")} "$@"
""")
    static.chmod(0o755)

    def make(name: str):
        if name not in made:
            model, args, kwargs, sizes = globals()[name]()
            model, args, kwargs = model.eval().npu(), to_npu(args), to_npu(kwargs)
            exported = torch.export.export(model, args, kwargs, dynamic_shapes=sizes)
            options = {"triton.autotune_at_compile_time": True}
            if name == "decides":
                options |= {"cpp.cxx": (None, str(static)), "cpp_cache_precompile_headers": False}
            with torch._inductor.config.patch(options):
                path = torch._inductor.aoti_compile_and_package(exported, package_path=str(folder / f"{name}.pt2"))
            made[name] = model, args, kwargs, path
        return made[name]

    return make


@pytest.fixture(scope="module")
def runner(packaged):
    loaded = {}

    def load(name: str):
        if name not in loaded:
            loaded[name] = torch._inductor.aoti_load_package(packaged(name)[3])
        return loaded[name]

    return load


@pytest.mark.parametrize("name", ["mlp", "lenet", "qwen2", "bert"])
def test_values_are_those_of_eager_mode(packaged, runner, name):
    model, args, kwargs, _ = packaged(name)
    torch_npu.fallback.reset()
    with torch.no_grad():
        expected, result = model(*args, **kwargs), runner(name)(*args, **kwargs)
    assert result.device == expected.device
    torch.testing.assert_close(result.cpu(), expected.cpu(), rtol=1e-5, atol=1e-5)
    assert not torch_npu.fallback.report()


@pytest.mark.parametrize("sign", [1, -1])
def test_conditions_and_loops_ask_their_values(packaged, runner, sign):
    x = sign * torch.rand(4, 6).npu()
    torch.testing.assert_close(runner("decides")(x).cpu(), packaged("decides")[0](x).cpu())


@pytest.mark.parametrize("batch", [0, 1, 2, 33, 64])
def test_one_package_for_all_sizes(packaged, runner, batch):
    x = torch.randn(batch, 16).npu()
    with torch.no_grad():
        torch.testing.assert_close(runner("mlp")(x).cpu(), packaged("mlp")[0](x).cpu(), rtol=1e-5, atol=1e-5)


WRONG = {
    "size": (lambda: torch.randn(8, 15).npu(), r"expected sizes \[8, 16\], got \[8, 15\]"),
    "range": (lambda: torch.randn(65, 16).npu(), "expected a size of at most 64 in dimension 0, got 65"),
    "rank": (lambda: torch.randn(8, 16, 1).npu(), r"expected 2 dimensions, got \[8, 16, 1\]"),
    "dtype": (lambda: torch.randn(8, 16).npu().half(), "expected Float, got Half"),
    "device": (lambda: torch.randn(8, 16), "expected a tensor on npu:0, got one on cpu"),
    "strides": (lambda: torch.randn(16, 8).npu().t(), r"expected strides \[16, 1\] .*, got \[1, 8\]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_input_is_an_exception(packaged, runner, name):
    make, sentence = WRONG[name]
    with pytest.raises(RuntimeError, match=f"input 0: {sentence}"):
        runner("mlp")(make())
    model, args, _, _ = packaged("mlp")  # and the next call is as before
    with torch.no_grad():
        torch.testing.assert_close(runner("mlp")(*args).cpu(), model(*args).cpu(), rtol=1e-5, atol=1e-5)


def test_weights_lie_on_the_device_and_can_be_replaced(packaged):
    model, args, _, path = packaged("mlp")
    torch.npu.synchronize()
    before = torch.npu.memory_allocated()
    package = torch._inductor.aoti_load_package(path)
    weights = sum(p.nbytes for p in model.parameters())
    assert before + weights <= torch.npu.memory_allocated() <= before + weights + 4096
    other = {n: torch.randn_like(p).npu() for n, p in model.state_dict().items() if n in package.get_constant_fqns()}
    package.load_constants(other, check_full_update=True)
    with torch.no_grad():
        expected = torch.func.functional_call(model, other, args)
    torch.testing.assert_close(package(*args).cpu(), expected.cpu(), rtol=1e-5, atol=1e-5)
    del package, other, expected
    assert torch.npu.memory_allocated() == before


def test_another_device_and_another_stream(packaged, two_devices):
    model, args, _, path = packaged("mlp")
    package = torch._inductor.aoti_load_package(path, device_index=1)
    assert torch.npu.current_device() == 0
    with torch.no_grad():
        expected = model(*args).cpu()
    x = args[0].to("npu:1")
    stream = torch.npu.Stream(device=1)
    stream.wait_stream(torch.npu.current_stream(1))
    with torch.npu.stream(stream):
        result = package(x)
    stream.synchronize()
    assert result.device == torch.device("npu:1")
    torch.testing.assert_close(result.cpu(), expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(RuntimeError, match="expected a tensor on npu:1, got one on npu:0"):
        package(args[0])
    assert torch.npu.current_device() == 0


def test_a_package_runs_on_another_driver(packaged, python):
    """The template refuses every command: each runs on the host."""
    model, _, _, path = packaged("mlp")
    code = """
    import sys, torch, torch_npu
    x = torch.linspace(-1, 1, 48).reshape(3, 16)
    print(torch._inductor.aoti_load_package(sys.argv[1])(x.npu()).cpu().tolist())
    print(sorted(torch_npu.fallback.report()))
    """
    lines = python(code, path, timeout=300, TORCH_NPU_DRIVER="template", TORCH_NPU_FALLBACK="quiet").lines()
    with torch.no_grad():
        expected = model(torch.linspace(-1, 1, 48).reshape(3, 16).npu()).cpu()
    torch.testing.assert_close(torch.tensor(eval(lines[-2])), expected, rtol=1e-5, atol=1e-5)
    assert "compiled::npu_fused" in lines[-1]


def test_a_program_in_cpp(packaged, tmp_path):
    model, _, _, path = packaged("lenet")
    build = ["cmake", "-S", ROOT / "examples" / "aoti", "-B", tmp_path, f"-DPython3_EXECUTABLE={sys.executable}"]
    for command in (build, ["cmake", "--build", tmp_path]):
        made = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert made.returncode == 0, made.stdout + made.stderr
    run = subprocess.run([tmp_path / "run_package", path, "3"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    scores = torch.tensor([[float(v) for v in line.split()] for line in run.stdout.splitlines()])
    with torch.no_grad():
        expected = model(example().ramps(3).npu()).cpu()
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-5)
    refused = subprocess.run([tmp_path / "run_package", path, "65"], capture_output=True, text=True)
    assert refused.returncode == 1 and "expected a size of at most 64" in refused.stderr
    for arguments, status in (((tmp_path / "nowhere.pt2", "3"), 1), ((path, "3x"), 2)):
        refused = subprocess.run([tmp_path / "run_package", *arguments], capture_output=True, text=True)
        assert refused.returncode == status and refused.stderr and "frame #" not in refused.stderr


class Number(ctypes.Structure):
    _fields_ = [("value", ctypes.c_int64), ("origin", ctypes.c_int32)]


class FirstSpec(ctypes.Structure):
    """torch_npu_kernel_spec as it was before there were convolutions: packages have it compiled in."""

    _fields_ = [
        *(("struct_size", ctypes.c_uint32), ("name", ctypes.c_char_p), ("kind", ctypes.c_char_p)),
        *((name, ctypes.c_int32) for name in ("inner_rank", "tensors", "numbers")),
        *((name, ctypes.c_int32) for name in ("size_count", "operand_count", "param_count")),
        *((name, ctypes.c_void_p) for name in ("sizes", "operands", "params")),
        *(("k", Number), ("program", ctypes.c_char_p)),
    ]


def test_kernels_of_older_packages_are_taken():
    library = ctypes.CDLL(os.path.join(torch_npu._info.library_path(), "libtorch_npu.so"))
    library.torch_npu_last_error.restype = ctypes.c_char_p
    sizes, kernel = (Number * 1)(Number(3, 0)), ctypes.c_void_p()
    spec = FirstSpec(ctypes.sizeof(FirstSpec), b"old", b"map", 0, 1, 0, 1, 0, 0, ctypes.addressof(sizes), None, None)
    spec.program = b"program old()\neach:\n  %a = const 1 : f32\n"
    assert library.torch_npu_kernel_create(ctypes.byref(spec), ctypes.byref(kernel)) == 0, (
        library.torch_npu_last_error()
    )
    library.torch_npu_kernel_delete(kernel)
    spec.struct_size -= 8
    assert library.torch_npu_kernel_create(ctypes.byref(spec), ctypes.byref(kernel)) == 1
    assert b"compile it again" in library.torch_npu_last_error()
