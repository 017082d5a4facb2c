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
}


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("chip", CHIPS)
def test_models_train_on_a_chip_that_has_less(chip, mode):
    options, rule = CHIPS[chip]
    found = train(options, mode, "lenet", "resnet_block", "qwen2_lora")
    assert found["fallbacks"] == {}
    assert any(rule in used for used in found["rules"]), found["rules"]
    for name, (npu, cpu) in found["losses"].items():
        assert npu == pytest.approx(cpu, rel=2e-3), name
