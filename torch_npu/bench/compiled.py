"""python -m torch_npu bench compile: compiled models against Inductor on the CPU and against eager mode on npu."""

import math
import re
import sys
import time
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from torch_npu import fallback
from torch_npu.bench.measure import CLOCKS, REST, Plan, compare
from torch_npu.bench.networks import ResNet18, lenet
from torch_npu.console.command import Outcome, UsageError
from torch_npu.console.progress import Progress
from torch_npu.console.table import some, table


def _lenet() -> tuple[nn.Module, dict]:
    return lenet(), {"input": torch.randn(32, 1, 28, 28)}


def _resnet() -> tuple[nn.Module, dict]:
    return ResNet18(10), {"x": torch.randn(4, 3, 64, 64)}


SIZES = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 704}


def _bert() -> tuple[nn.Module, dict]:
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=1000, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **SIZES)
    return BertModel(config, add_pooling_layer=False), {"input_ids": torch.randint(1000, (4, 64))}


def _vit() -> tuple[nn.Module, dict]:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(image_size=64, patch_size=8, hidden_dropout_prob=0.0, **SIZES)
    return ViTModel(config, add_pooling_layer=False), {"pixel_values": torch.randn(4, 3, 64, 64)}


def _llama() -> tuple[nn.Module, dict]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=1000, num_key_value_heads=2, **SIZES)
    return LlamaForCausalLM(config), {"input_ids": torch.randint(1000, (4, 64)), "use_cache": False}


def _qwen2() -> tuple[nn.Module, dict]:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(vocab_size=1000, num_key_value_heads=2, **SIZES)
    return Qwen2ForCausalLM(config), {"input_ids": torch.randint(1000, (4, 64)), "use_cache": False}


class Pointwise(nn.Module):
    """Nothing but element by element work, as in physics and in image filters."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for k in range(1, 6):
            x = torch.tanh(x * 0.5 + k) * torch.sigmoid(x) + F.silu(x - k) * 0.1
            x = (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True) + 1e-5)
        return x


def _pointwise() -> tuple[nn.Module, dict]:
    return Pointwise(), {"x": torch.randn(256, 1024, requires_grad=True)}


MODELS = {
    "LeNet": _lenet,
    "ResNet-18": _resnet,
    "BERT": _bert,
    "ViT": _vit,
    "Llama": _llama,
    "Qwen2": _qwen2,
    "pointwise": _pointwise,
}


def _first(answer) -> torch.Tensor:
    return answer if isinstance(answer, torch.Tensor) else answer[0]


def _ready(name: str, device: str, training: bool, mode: str | None) -> Callable:
    """A call of the model, compiled unless `mode` is None."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model = model.to(device).train(training)
    inputs = {k: v.detach().to(device) if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}
    if not any(True for _ in model.parameters()) and training:
        inputs = {k: v.requires_grad_() for k, v in inputs.items()}
    call = torch.compile(model, mode=mode) if mode else model
    wanted = [*model.parameters(), *(v for v in inputs.values() if isinstance(v, torch.Tensor) and v.requires_grad)]

    def forward() -> None:
        with torch.no_grad():
            call(**inputs)

    def step() -> None:
        for tensor in wanted:
            tensor.grad = None
        _first(call(**inputs)).square().mean().backward()

    return step if training else forward


def _first_call(call: Callable) -> float:
    start = time.perf_counter()
    call()
    torch.npu.synchronize()
    return time.perf_counter() - start


# A block is a piece of a training loop, whose host runs ahead of the device: it is waited for once, behind these calls.
CALLS = 10


def _measure(name: str, training: bool, options) -> dict:
    torch._dynamo.reset()
    warnings.filterwarnings("ignore", message=".*force_disable_caches")
    rest = REST if options.threads != 1 else 0.0
    plan = Plan(0.02, options.rounds or (3 if options.quick else 7), rest, CLOCKS[options.clock], CALLS)
    cpu = _ready(name, "cpu", training, "default")
    npu = _ready(name, options.device, training, "default")
    eager = _ready(name, options.device, training, None)
    with torch._inductor.config.patch(force_disable_caches=True):
        first_cpu, first_npu = _first_call(cpu), _first_call(npu)
    against_cpu = compare(cpu, npu, torch.npu.synchronize, plan)
    against_eager = compare(eager, npu, torch.npu.synchronize, plan, torch.npu.synchronize)
    return {
        "model": name,
        "phase": "training" if training else "forward",
        "first_cpu_s": first_cpu,
        "first_npu_s": first_npu,
        "inductor_cpu_ms": min(against_cpu.cpu) * 1e3,
        "npu_eager_ms": min(against_eager.cpu) * 1e3,
        "npu_compiled_ms": min(against_cpu.npu) * 1e3,
        "to_inductor": against_cpu.ratio,
        "to_eager": against_eager.ratio,
    }


GRAPH = "graph"  # what --model knows the replay by


def _replay(device: str) -> dict:
    """What the host takes for a small network: to call it in eager mode, and to replay its graph."""
    layers = (nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    model, x = nn.Sequential(*layers).to(device), torch.randn(4, 16, device=device)

    def host(call: Callable, calls: int = 300, rounds: int = 10) -> float:
        times = []
        for _ in range(rounds):
            torch.npu.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                call()
            times.append((time.perf_counter() - start) / calls)
        return min(times) * 1e6

    with torch.no_grad():
        for _ in range(3):
            model(x)
        graph = torch.npu.NPUGraph()
        try:
            with torch.npu.graph(graph):
                model(x)
        except RuntimeError as error:
            if "while a graph is captured" not in str(error):
                raise
            return {"refused": str(error)}  # by a driver without commands of its own
        eager, replay = host(lambda: model(x)), host(graph.replay)
    torch.npu.synchronize()
    return {"host_eager_us": eager, "host_replay_us": replay, "to_eager": eager / replay}


def _missed(rows: list[dict], replay: dict | None) -> list[str]:
    missed = []
    if rows and (mean := _mean([r["to_inductor"] for r in rows])) < 1.2:
        missed.append(f"expected a mean of at least 1.2x, got {mean:.2f}x")
    for row in rows:
        name = f"{row['model']}, {row['phase']}"
        least = 1.5 if row["model"] == "pointwise" else 1.0
        if row["to_eager"] < least:
            missed.append(f"expected at least {least}x eager for {name}, got {row['to_eager']:.2f}x")
        if row["first_npu_s"] >= row["first_cpu_s"]:
            seconds = f"{row['first_npu_s']:.1f} s, Inductor on the CPU {row['first_cpu_s']:.1f} s"
            missed.append(f"expected the first call of {name} sooner than on the CPU, got {seconds}")
    if replay and replay.get("to_eager", 0) < 5:
        got = f"{replay['to_eager']:.1f}x" if "to_eager" in replay else "no graph"
        missed.append(f"expected a replay at least 5x faster than eager on the host, got {got}")
    return missed


def _mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def run(options) -> Outcome:
    chosen = [name for name in MODELS if re.search(options.model, name)]
    replays = bool(re.search(options.model, GRAPH))
    if not chosen and not replays:
        raise UsageError(f"expected part of {', '.join([*MODELS, GRAPH])}, got {options.model}")
    phases = [training for training in (False, True) if re.search(options.phase, "training" if training else "forward")]
    if not phases:
        raise UsageError(f"expected part of forward, training, got {options.phase}")
    rows = []
    with Progress(len(chosen) * len(phases) + replays, options.quiet) as progress, fallback.mode("quiet"):
        for name in chosen:
            for training in phases:
                progress.step(f"{name}, {'training' if training else 'forward'}")
                rows.append(_measure(name, training, options))
        if replays:
            progress.step("replay of a graph")
        replay = _replay(options.device) if replays else None
    missed = _missed(rows, replay)
    for line in missed if options.check else []:
        print(line, file=sys.stderr)
    answer = {"threads": options.threads, "rows": rows, "replay": replay}
    return Outcome(answer, _text(rows, replay), int(bool(missed) and options.check))


def _text(rows: list[dict], replay: dict | None) -> str:
    header = ("model", "phase", "first call: cpu s", "npu s", "cpu ms", "npu eager ms", "npu ms", "to cpu", "to eager")
    shown = [
        (r["model"], r["phase"], f"{r['first_cpu_s']:.1f}", f"{r['first_npu_s']:.1f}")
        + tuple(f"{r[k]:.2f}" for k in ("inductor_cpu_ms", "npu_eager_ms", "npu_compiled_ms"))
        + (f"{r['to_inductor']:.2f}x", f"{r['to_eager']:.2f}x")
        for r in rows
    ]
    parts = []
    if rows:
        mean = _mean([r["to_inductor"] for r in rows])
        parts += [
            f"{table(header, shown)}\n",
            f"compiled on npu against Inductor on the CPU: {mean:.2f}x (geometric mean)",
        ]
    if replay and "refused" in replay:
        parts.append(f"a small network could not be captured: {replay['refused']}")
    elif replay:
        host = f"{replay['host_eager_us']:.1f} us eager, {replay['host_replay_us']:.1f} us by its graph"
        parts.append(f"a small network on the host: {host}, {replay['to_eager']:.1f}x")
    if fallback.report():
        parts.append(f"computed on the CPU: {some(fallback.report())}")
    return "\n".join(parts)
