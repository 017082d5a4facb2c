"""Models in small sizes with random weights: nothing is downloaded. Each function returns a model and its inputs; the
model's answer to them is a loss."""

import torch
from torch import nn
from torch.nn import functional as F

from torch_npu.bench import networks


class Classify(nn.Module):
    """Cross entropy over what a model answers."""

    def __init__(self, model: nn.Module, pick=lambda answer: answer):
        super().__init__()
        self.model, self.pick = model, pick

    def forward(self, labels: torch.Tensor, *args, **kwargs) -> torch.Tensor:
        logits = self.pick(self.model(*args, **kwargs))
        return F.cross_entropy(logits.flatten(0, -2), labels.flatten())


class Loss(nn.Module):
    """The loss that a model of transformers computes itself."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, **kwargs) -> torch.Tensor:
        return self.model(**kwargs).loss


def lenet():
    return Classify(networks.lenet()), (torch.randint(10, (4,)), torch.randn(4, 1, 28, 28)), {}


def resnet18():
    return Classify(networks.ResNet18(10, width=16)), (torch.randint(10, (4,)), torch.randn(4, 3, 64, 64)), {}


def resnet_block():
    model = nn.Sequential(networks.Block(4, 8, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    return Classify(model), (torch.randint(5, (2,)), torch.randn(2, 4, 10, 10)), {}


def padded_pool():
    """Windows that overlap and reach over the edge."""
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(3, 2, 1), nn.Flatten(), nn.Linear(64, 5)
    )
    return Classify(model), (torch.randint(5, (2,)), torch.randn(2, 1, 16, 16)), {}


def vit():
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        num_labels=5,
    )
    model = ViTForImageClassification(config)
    return Loss(model), (), {"pixel_values": torch.randn(3, 3, 32, 32), "labels": torch.randint(5, (3,))}


def convnext():
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 2, 1], num_labels=5)
    model = ConvNextForImageClassification(config)
    return Loss(model), (), {"pixel_values": torch.randn(2, 3, 64, 64), "labels": torch.randint(5, (2,))}


def _tokens(vocabulary: int, *shape: int) -> torch.Tensor:
    return torch.randint(3, vocabulary, shape)


def _padding(batch: int, length: int) -> torch.Tensor:
    """1 where there is a token: the second sentence is shorter."""
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[1, length - 4 :] = 0
    return mask


def bert():
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=40,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    inputs = {"input_ids": _tokens(100, 2, 20), "attention_mask": _padding(2, 20), "labels": _tokens(100, 2, 20)}
    return Loss(BertForMaskedLM(config)), (), inputs


def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=100,
        d_model=32,
        d_kv=16,
        d_ff=64,
        num_layers=2,
        num_heads=2,
        dropout_rate=0.0,
        feed_forward_proj="gated-gelu",
        decoder_start_token_id=0,
        pad_token_id=0,
    )
    inputs = {"input_ids": _tokens(100, 2, 14), "attention_mask": _padding(2, 14), "labels": _tokens(100, 2, 9)}
    return Loss(T5ForConditionalGeneration(config)), (), inputs


def whisper():
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=100,
        num_mel_bins=16,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=30,
        max_target_positions=20,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config)
    return Loss(model), (), {"input_features": torch.randn(2, 16, 60), "labels": _tokens(100, 2, 10)}


DECODER = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}


def qwen2_alone(**options):
    """The model without a loss."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return Qwen2ForCausalLM(Qwen2Config(**DECODER | options))


def _with_loss(decoder):
    tokens = _tokens(100, 2, 24)
    return Loss(decoder), (), {"input_ids": tokens, "attention_mask": _padding(2, 24), "labels": tokens}


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return _with_loss(LlamaForCausalLM(LlamaConfig(**DECODER)))


def qwen2():
    return _with_loss(qwen2_alone(tie_word_embeddings=True))


def qwen2_lora():
    from peft import LoraConfig, get_peft_model

    loss, inputs, named = qwen2()
    options = LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules=["q_proj", "v_proj"])
    loss.model = get_peft_model(loss.model, options)
    return loss, inputs, named


def mamba():
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(vocab_size=100, hidden_size=32, num_hidden_layers=2, state_size=8, pad_token_id=0)
    tokens = _tokens(100, 2, 16)
    return Loss(MambaForCausalLM(config)), (), {"input_ids": tokens, "labels": tokens}


class Recurrent(nn.Module):
    """Sequences through an LSTM or a GRU; `lengths` packs them."""

    def __init__(self, kind: type[nn.RNNBase], **options):
        super().__init__()
        self.rnn = kind(12, 16, **options)
        width = options.get("proj_size", 16)
        self.head = nn.Linear(2 * width if options.get("bidirectional") else width, 7)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor | None = None) -> torch.Tensor:
        if lengths is None:
            return self.head(self.rnn(x)[0])
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.head(nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0])


def recurrent(kind: type[nn.RNNBase], packed: bool = False, **options):
    def make():
        model = Classify(Recurrent(kind, batch_first=True, **options))
        x, lengths = torch.randn(3, 9, 12), torch.tensor([5, 9, 2])  # lengths stay on the CPU, as PyTorch wants them
        return model, (torch.randint(7, (3, 9)), x, lengths if packed else None), {}

    return make


TWO_WAYS = {"num_layers": 2, "bidirectional": True}
MODELS = {
    "lenet": lenet,
    "resnet18": resnet18,
    "vit": vit,
    "convnext": convnext,
    "bert": bert,
    "t5": t5,
    "whisper": whisper,
    "llama": llama,
    "qwen2": qwen2,
    "mamba": mamba,
    "lstm": recurrent(nn.LSTM),
    "lstm_two_ways": recurrent(nn.LSTM, **TWO_WAYS),
    "lstm_packed": recurrent(nn.LSTM, packed=True, **TWO_WAYS),
    "lstm_projected": recurrent(nn.LSTM, proj_size=6),
    "gru": recurrent(nn.GRU),
    "gru_two_ways": recurrent(nn.GRU, **TWO_WAYS),
    "gru_packed": recurrent(nn.GRU, packed=True, **TWO_WAYS),
    "rnn_packed": recurrent(nn.RNN, packed=True, **TWO_WAYS),
}
