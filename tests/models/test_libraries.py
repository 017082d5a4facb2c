"""Libraries as they come from PyPI, and the parts of PyTorch that scripts use around a model: each is told `npu`, or
finds it by itself, and does what it does on the CPU."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_npu


@pytest.fixture
def model():
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    return Qwen2ForCausalLM(config)


# --- accelerate and transformers ------------------------------------------------------------------------------------


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


# --- torch: data, functions, parametrizations, optimizers, export ---------------------------------------------------


def test_loader_pins_in_workers_and_copies_without_waiting():
    rows = torch.arange(64.0).view(16, 4)
    loader = torch.utils.data.DataLoader(rows, batch_size=4, pin_memory=True, num_workers=2)
    got = []
    for batch in loader:
        assert batch.is_pinned()
        got.append(batch.to("npu", non_blocking=True))
    assert torch.equal(torch.cat(got).cpu(), rows)


def both(function) -> None:
    """`function` gives the same tensors on both devices, and nothing falls back."""
    torch_npu.fallback.reset()
    got = function("npu")
    assert torch_npu.fallback.report() == {}
    want = function("cpu")
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-4, atol=1e-5)


def test_torch_func():
    from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vmap

    def compute(device):
        torch.manual_seed(0)
        w, x = torch.randn(4, 3).to(device), torch.randn(5, 3).to(device)
        networks = [nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)).to(device) for _ in range(3)]
        parameters, buffers = stack_module_state(networks)
        images, conv = torch.randn(2, 3, 2, 6, 6).to(device), nn.Conv2d(2, 3, 3).to(device)

        def f(x):
            return (w @ x).tanh()

        def g(w, x):
            return (w @ x).sin().sum()

        yield vmap(grad(g), (None, 0))(w, x)
        yield jacrev(f)(x[0])
        yield jacfwd(f)(x[0])
        yield hessian(lambda x: g(w, x))(x[0])
        yield jvp(f, (x[0],), (x[1],))[1]
        yield vmap(lambda p, b: functional_call(networks[0], (p, b), (x,)))(parameters, buffers)
        yield vmap(conv)(images)
        yield from attention(device)

    def attention(device):
        """Queries, keys and values of each call; one mask for all."""
        q, k, v = torch.randn(3, 5, 2, 4, 6, 8).to(device)
        for options in ({}, {"is_causal": True}, {"attn_mask": torch.randn(6, 6).to(device)}, {"scale": 0.3}):

            def attend(q, k, v, options=options):
                return F.scaled_dot_product_attention(q, k, v, **options)

            yield vmap(attend)(q, k, v)
            yield vmap(attend, (0, None, None))(q, k[0], v[0])
            yield from vmap(grad(lambda *given: attend(*given).sin().sum(), argnums=(0, 1, 2)))(q, k, v)

    both(lambda device: list(compute(device)))


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm"])
def test_parametrizations(name):
    from torch.nn.utils import parametrizations, parametrize

    def compute(device):
        torch.manual_seed(0)
        layer = getattr(parametrizations, name)(nn.Linear(6, 4)).to(device)
        layer(torch.ones(2, 6, device=device)).sum().backward()
        gradients = [p.grad for p in layer.parameters()]
        parametrize.remove_parametrizations(layer, "weight")
        return [layer.weight, *gradients]

    both(compute)


OPTIMIZERS = sorted(
    name
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_of_torch(name):
    """Five steps, then a state that goes through a file and on."""
    sparse = name == "SparseAdam"

    def compute(device):
        torch.manual_seed(0)
        layer = nn.Embedding(5, 4, sparse=True) if sparse else nn.Linear(4, 4, bias=name != "Muon")
        layer.to(device)
        x = torch.tensor([1, 3, 1], device=device) if sparse else torch.randn(8, 4).to(device)
        optimizer = getattr(torch.optim, name)(layer.parameters())

        def closure():
            optimizer.zero_grad()
            loss = layer(x).pow(2).sum()
            loss.backward()
            return loss

        for step in range(5):
            if step == 3:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            optimizer.step(closure)
        return list(layer.parameters())

    for mine, theirs in zip(compute("npu"), compute("cpu"), strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-4, atol=1e-5)


def test_export_with_a_free_batch_size_goes_through_a_file(tmp_path):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8)).to("npu")
    batch = torch.export.Dim("batch")
    exported = torch.export.export(network, (torch.randn(2, 4, device="npu"),), dynamic_shapes=({0: batch},))
    torch.export.save(exported, tmp_path / "network.pt2")
    loaded = torch.export.load(tmp_path / "network.pt2")
    x = torch.randn(7, 4, device="npu")
    torch_npu.fallback.reset()
    torch.testing.assert_close(loaded.module()(x), network(x))
    torch.testing.assert_close(exported.run_decompositions().module()(x), network(x))
    assert torch_npu.fallback.report() == {}
