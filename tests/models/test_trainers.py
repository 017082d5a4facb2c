"""accelerate and transformers as they come from PyPI: they are told `npu`, or find it by themselves, and train and
generate as on the CPU."""

import copy

import pytest
import torch
from torch import nn

import torch_npu
from tests.support import small_models


@pytest.fixture
def model():
    torch.manual_seed(0)
    return small_models.qwen2_alone(vocab_size=300, tie_word_embeddings=True)


def train_by_accelerate(**options) -> tuple[list[float], torch.device]:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, PartialState

    AcceleratorState._reset_state()
    PartialState._reset_state()  # its choice of a device holds for the process
    accelerator = Accelerator(gradient_accumulation_steps=2, **options)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    rows = torch.randn(32, 8)
    loader = torch.utils.data.DataLoader(rows, batch_size=4)
    network, optimizer, loader = accelerator.prepare(network, optimizer, loader)
    losses = []
    for _ in range(2):
        for x in loader:
            with accelerator.accumulate(network):
                loss = (network(x).float() - x.sum(1, keepdim=True)).pow(2).mean()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(network.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather(loss).mean().item())
    return losses, accelerator.device


def test_accelerator_picks_the_device_and_trains_as_on_the_cpu():
    from accelerate.utils import GradScalerKwargs

    losses, device = train_by_accelerate()
    assert device.type == "npu"
    on_cpu, _ = train_by_accelerate(cpu=True)
    assert losses == pytest.approx(on_cpu, rel=1e-4)
    mixed, _ = train_by_accelerate(mixed_precision="bf16")
    assert mixed == pytest.approx(on_cpu, rel=0.05) and mixed != losses
    scaler = GradScalerKwargs(init_scale=256.0)
    scaled, _ = train_by_accelerate(mixed_precision="fp16", kwargs_handlers=[scaler])
    assert scaled == pytest.approx(on_cpu, rel=0.05) and scaled not in (losses, mixed)


def test_pipeline_generates_the_cpus_text(model, tmp_path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, pipeline

    letters = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inside = Tokenizer(models.BPE(vocab=letters | {"<end>": 256}, merges=[]))
    inside.pre_tokenizer, inside.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=inside, pad_token="<end>").save_pretrained(tmp_path)
    model.save_pretrained(tmp_path)
    said = {}
    for device in ("cpu", "npu", "npu:0"):
        pipe = pipeline("text-generation", model=str(tmp_path), device=device)
        assert pipe.device.type == device.split(":")[0]
        texts = ["a small model", "says"]
        said[device] = pipe(texts, max_new_tokens=12, do_sample=False, batch_size=2)
    assert said["npu"] == said["npu:0"] == said["cpu"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bf16": True},
        {"fp16": True},
        {"gradient_checkpointing": True},
        {"optim": "adamw_torch_npu_fused"},
        {"dataloader_num_workers": 1, "dataloader_pin_memory": True},
    ],
    ids=lambda options: next(iter(options), "plain"),
)
def test_trainer_follows_the_cpu_without_fallback(model, options, tmp_path):
    from transformers import Trainer, TrainingArguments

    draw = torch.Generator().manual_seed(0)
    rows = [torch.randint(300, (12,), generator=draw).tolist() for _ in range(12)]
    data = [{"input_ids": row, "labels": row} for row in rows]

    def losses(**more) -> list[float]:
        arguments = TrainingArguments(
            str(tmp_path),
            per_device_train_batch_size=4,
            max_steps=3,
            learning_rate=1e-3,
            logging_steps=1,
            save_strategy="no",
            disable_tqdm=True,
            report_to=[],
            **more,
        )
        trainer = Trainer(copy.deepcopy(model), arguments, train_dataset=data, eval_dataset=data)
        trainer.train()
        return [float(x["loss"]) for x in trainer.state.log_history if "loss" in x] + [trainer.evaluate()["eval_loss"]]

    torch_npu.fallback.reset()
    got = losses(**options)
    assert torch_npu.fallback.report() == {}
    assert got == pytest.approx(losses(use_cpu=True), rel=2e-3)
    assert got[-1] < got[0]
