"""Tiny random models of several architectures, with a tokenizer, built from nothing."""

import string
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModel,
    BertConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedTokenizerFast,
)

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *string.ascii_lowercase, "cat", "dog", "sat", "mat", "the", "on"]
SIZE = {"vocab_size": len(WORDS), "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}

CONFIGS: dict[str, PretrainedConfig] = {
    "bert": BertConfig(**SIZE, num_hidden_layers=4, max_position_embeddings=64),
    "gpt2": GPT2Config(vocab_size=len(WORDS), n_embd=32, n_layer=4, n_head=4, n_positions=64),
    "gpt_neox": GPTNeoXConfig(**SIZE, num_hidden_layers=4, max_position_embeddings=64),
    "llama": LlamaConfig(**SIZE, num_hidden_layers=4, num_key_value_heads=2, max_position_embeddings=64),
}


def make_tokenizer(padding_side: str = "right", special: bool = True) -> PreTrainedTokenizerFast:
    """Words and letters to ids; with [CLS] … [SEP] around where ``special``."""
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    if special:
        core.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    named: dict[str, Any] = {"cls_token": "[CLS]", "sep_token": "[SEP]"} if special else {}
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        unk_token="[UNK]",
        pad_token="[PAD]",
        padding_side=padding_side,
        model_max_length=64,
        **named,
    )


def make_model(family: str, seed: int = 0) -> Any:
    """A random model of one family, with weights large enough that layers differ."""
    torch.manual_seed(seed)
    model = AutoModel.from_config(CONFIGS[family]).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4.0)
    return model


TEXTS = [
    "the cat sat on the mat",
    "dog",
    "a b c d e f g h i j k l m n o p",
    "the dog sat",
    "z y x",
    "cat cat cat cat cat cat cat cat cat",
    "on the mat",
    "q r s t u v w x y z a b c d e f g h i j k",
]
