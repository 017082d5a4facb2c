"""Models on chips that have less than the contract: nothing runs on the CPU, and the answers are right. What a driver
refuses is made from what it takes (docs/design/legalisation.md)."""

import json
import os
import subprocess
import sys

import pytest

from tests.support import LIBRARIES, ROOT

POOR = LIBRARIES / "testing" / "libnpu_poor.so"

TRAIN = """
import copy, json, sys
import torch, torch_npu
from tests.support import small_models

def losses(made, device, compiled):
    model, inputs, named = copy.deepcopy(made)
    model = model.to(device)
    step = torch.compile(model) if compiled else model
    inputs = [x.to(device) if isinstance(x, torch.Tensor) else x for x in inputs]
    named = {name: x.to(device) for name, x in named.items()}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    answers = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = step(*inputs, **named)
        loss.backward()
        optimizer.step()
        answers.append(loss.item())
    return answers

compiled = sys.argv[1] == "compiled"
out = {}
for name in sys.argv[2:]:
    torch.manual_seed(0)
    torch._dynamo.reset()  # else sizes that differ between the models would be taken for dynamic ones
    made = getattr(small_models, name)()
    out[name] = [losses(made, "npu", compiled), losses(made, "cpu", False)]
rules = sorted({rule for decision in torch_npu.legalisation.report() for rule in decision.rules})
print(json.dumps({"losses": out, "fallbacks": torch_npu.fallback.report(), "rules": rules}))
"""


def train(options: str, mode: str, *models: str) -> dict:
    environment = os.environ | {"TORCH_NPU_DRIVER": f"{POOR}:{options}", "TORCH_NPU_FALLBACK": "quiet"}
    command = [sys.executable, "-c", TRAIN, mode, *models]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


# What the chip has, and a rule without which it would not do.
CHIPS = {
    "products without programs": ("epilogue=0", "product, then its program"),
    "COPY, MAP and products only": ("commands=COPY+MAP+MATMUL:epilogue=0", "convolution, as products of windows"),
    "COPY and MAP only": ("commands=COPY+MAP", "product, as sums in MAPs"),
    "products of rows only": ("layout=rows", "dense operands"),
    "products of bytes only": ("products=i8", "product, as REDUCE"),
    "f32, i32 and bool only": ("types=f32+i32+bool:compute=f32+i32+bool", "64 bits in words"),
    "no wide numbers in programs": ("compute=f32+i32+bool", "64 bits in words"),
    "four dimensions": ("rank=4", "dimensions merged"),
    "eight operands": ("operands=8", "program cut where least crosses"),
    "sums and maxima, one a command": ("segments=1:manyfolds=0:folds=sum+max:inner=1", "folds, then stores"),
}
# Compiled code takes longest, and asks for little else than eager mode: NPU_POOR=all has every chip.
COMPILED = ["COPY, MAP and products only", "f32, i32 and bool only", "eight operands"]
EVERY = [("eager", chip) for chip in CHIPS]
EVERY += [("compiled", chip) for chip in (CHIPS if os.environ.get("NPU_POOR") == "all" else COMPILED)]


@pytest.mark.parametrize(("mode", "chip"), EVERY)
def test_models_train_on_a_chip_that_has_less(mode, chip):
    options, rule = CHIPS[chip]
    found = train(options, mode, "lenet", "resnet_block", "qwen2_lora")
    assert found["fallbacks"] == {}
    # No eager op of these models has more than eight operands.
    assert any(rule in used for used in found["rules"]) or (chip, mode) == ("eight operands", "eager"), found["rules"]
    for name, (npu, cpu) in found["losses"].items():
        assert npu == pytest.approx(cpu, rel=2e-3), name


def test_a_chip_that_takes_everything_has_nothing_made():
    found = train("rank=8", "eager", "lenet", "qwen2_lora")
    assert found["fallbacks"] == {} and found["rules"] == []
