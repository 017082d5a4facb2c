"""What the Qwen2 examples share: sizes, a text, a tokenizer. Nothing is downloaded, so weights are random."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from torch_npu.bench import qwen2

SIZES = {"tiny": qwen2.TINY | {"initializer_range": 0.1}, "0.5b": qwen2.QWEN2_05B}


def model(size: str, dtype: torch.dtype = torch.float32) -> Qwen2ForCausalLM:
    """On the CPU, so that a seed means the same weights for every device."""
    config = Qwen2Config(**SIZES[size], max_position_embeddings=32768, tie_word_embeddings=True)
    config.eos_token_id = config.bos_token_id = config.pad_token_id = 0
    return Qwen2ForCausalLM(config).to(dtype)


def text() -> str:
    """This project's own documentation."""
    pages = (Path(__file__).parent.parent / "docs").glob("*.md")
    return "\n\n".join(page.read_text() for page in sorted(pages))


def tokenizer(words: str) -> PreTrainedTokenizerFast:
    """Bytes and their most frequent combinations in a text: 1,024 tokens; 0 is the end of a text."""
    inside = Tokenizer(models.BPE())
    inside.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inside.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1024, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    inside.train_from_iterator([words], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=inside, eos_token="<end>", pad_token="<end>")
