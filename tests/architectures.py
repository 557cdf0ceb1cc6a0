"""Tiny random encoders of every architecture whose layers a student may have, and of some whose layers it may not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import AutoTokenizer

SIZES = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32}
DRAWN = {"initializer_range": 0.3}
DISTIL = {"dim": 16, "n_layers": 4, "n_heads": 2, "hidden_dim": 32}
MODERN = {
    "pad_token_id": 0,
    "local_attention": 4,
    "global_attn_every_n_layers": 2,
    "cls_token_id": 2,
    "sep_token_id": 3,
}
QWEN = {
    "head_dim": 8,
    "num_key_value_heads": 1,
    "sliding_window": 4,
    "use_sliding_window": True,
    "max_window_layers": 2,  # two layers read all, two the last four tokens
}
GEMMA = {
    "head_dim": 8,
    "num_key_value_heads": 1,
    "sliding_window": 4,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
    "use_bidirectional_attention": True,
    "pad_token_id": 0,
}

CHAINS: dict[str, tuple[str, dict[str, Any], str]] = {
    "bert": ("Bert", SIZES | DRAWN, "mean"),
    "roberta": ("Roberta", SIZES | DRAWN | {"pad_token_id": 0}, "cls"),
    "mpnet": ("MPNet", SIZES | DRAWN | {"pad_token_id": 0}, "mean"),
    "distilbert": ("DistilBert", DISTIL | DRAWN, "mean"),
    "electra": ("Electra", SIZES | DRAWN | {"embedding_size": 16}, "cls"),
    "modernbert": ("ModernBert", SIZES | DRAWN | MODERN, "cls"),
    "qwen3": ("Qwen3", SIZES | DRAWN | QWEN, "lasttoken"),
    "gemma3": ("Gemma3Text", SIZES | DRAWN | GEMMA, "mean"),
}
"""Kind: transformers' name, configuration and pooling."""

OTHERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "t5": ("T5", {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 4, "num_heads": 2}, "mean"),
    "albert": ("Albert", SIZES | DRAWN | {"embedding_size": 16}, "mean"),
    "deberta": ("DebertaV2", SIZES | DRAWN | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, "mean"),
}


def make_architecture(kind: str, tokenizer_of: Path, folder: Path, **changes: Any) -> Path:
    """A sentence-transformers folder with a random model of that kind, which has the tokenizer of another encoder."""
    name, values, pooling = (CHAINS | OTHERS)[kind]
    tokenizer = AutoTokenizer.from_pretrained(str(tokenizer_of))
    raw = folder.with_name(f"{folder.name}-raw")
    tokenizer.save_pretrained(raw)
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(vocab_size=len(tokenizer), **{**values, **changes})
    model: Callable[..., Any] = getattr(transformers, f"{name}EncoderModel" if kind == "t5" else f"{name}Model")
    model(config).save_pretrained(raw)
    width = Transformer(str(raw)).get_embedding_dimension()
    modules = [Transformer(str(raw)), Pooling(width, pooling_mode=pooling)]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder), create_model_card=False)
    return folder


def make_static(tokenizer_of: Path, folder: Path) -> Path:
    """A static encoder: a vector for each token, no transformer."""
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_of / "tokenizer.json"))
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)], device="cpu").save(
        str(folder), create_model_card=False
    )
    return folder
