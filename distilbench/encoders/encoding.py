"""Encoding sentences in length-aware batches: the vectors that sentence-transformers has, sooner."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from distilbench.encoders.words import WordReader, reads_by_word

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer


TOKENS_PER_BATCH = {"cpu": 1024, "cuda": 65536}
"""Padded tokens of one forward pass. On CPU 1,024 encodes 27 % more sentences per second than 4,096 (mpnet)."""

ENOUGH_TOKENS = 128
"""On CPU a batch with this many tokens takes no longer sentence in: of 512 real sentences 1 % is padding then instead of
13 %, and a linear layer over 64 tokens already has 90 % of its speed over 1,024."""

AT_ONCE = 1024
"""Sentences of a batch of an encoder that is no transformer, and has no padding."""

BESIDE = 32
"""Sentences of a batch of a transformer that sentence-transformers itself reads with."""


def reads_tokens(model: SentenceTransformer) -> bool:
    """Whether a transformer reads the sentences' token ids; a static embedding (model2vec) or another module does not.

    Neither does one that reads more than they: a chat template, settings of its own for its tokenizer, types of tokens as
    XLNet has.
    """
    from sentence_transformers.base.modules import Transformer

    first = model[0]
    if not isinstance(first, Transformer) or first.processing_kwargs or "message" in first.modality_config:
        return False
    backend = getattr(first.tokenizer, "backend_tokenizer", None)
    if backend is None or "token_type_ids" not in first.tokenizer.model_input_names:
        return True
    with _TOKENIZER:
        return not any(backend.encode("").type_ids)


def reads_ids(model: SentenceTransformer) -> bool:
    """Whether `encode` reads token ids with the encoder whatever the prompt, and no module leaves the prompt out."""
    return reads_tokens(model) and not _leaves_prompt_out(model)


def _leaves_prompt_out(model: SentenceTransformer) -> bool:
    return any(getattr(module, "include_prompt", True) is False for module in model)


BACKEND_FROM = 64
"""Texts from which a fast tokenizer's backend is asked itself."""

_TOKENIZER = threading.Lock()
"""A fast tokenizer keeps how it truncates: two threads that set it fail ("Already borrowed")."""


def token_ids(model: SentenceTransformer, sentences: Sequence[str], prompt: str = "") -> list[list[int]]:
    """Token ids of each sentence, behind the prompt, with special tokens, cut at the encoder's limit."""
    if not sentences:  # the tokenizer fails on none
        return []
    texts = [prompt + sentence for sentence in sentences]
    given = {"truncation": True, "max_length": model.max_seq_length, "padding": False}
    left_out = {"return_attention_mask": False, "return_token_type_ids": False}
    tokenizer = model.tokenizer
    with _TOKENIZER:
        backend: Any = getattr(tokenizer, "backend_tokenizer", None)
        if len(texts) >= BACKEND_FROM and hasattr(backend, "encode_batch_fast"):
            # Its first text sets the backend up. transformers makes lists of all that it knows of every token: four times the
            # work of the calling thread, which no other core takes over.
            first = tokenizer(texts[:1], **given, **left_out)["input_ids"][0]
            if backend.encode_batch_fast(texts[:1])[0].ids == list(first):
                return [encoding.ids for encoding in backend.encode_batch_fast(texts)]
        return list(tokenizer(texts, **given, **left_out)["input_ids"])


def prompt_of(model: SentenceTransformer, prompt: str | None) -> str:
    """The prompt to read sentences with: the one given, or for None the encoder's own default, if it has one."""
    return model.prompts.get(model.default_prompt_name or "", "") if prompt is None else prompt


def token_budget_batches(lengths: NDArray[np.int64], budget: int, enough: int | None = None) -> list[NDArray[np.int64]]:
    """Positions in batches of similar length: longest x count <= `budget` padded tokens, at least one per batch.

    A batch of at least `enough` padded tokens takes no sentence in that is longer than its longest; None fills every
    batch up to the budget.
    """
    order = np.argsort(lengths, kind="stable")
    ordered = lengths[order].tolist()
    batches: list[NDArray[np.int64]] = []
    start = 0
    for stop in range(1, len(ordered) + 1):
        if stop < len(ordered):
            count, longest, following = stop - start, ordered[stop - 1], ordered[stop]
            padding_begins = enough is not None and following > longest and count * longest >= enough
            if not padding_begins and (count + 1) * following <= budget:
                continue
        batches.append(order[start:stop])
        start = stop
    return batches


def padded(ids: Sequence[Sequence[int] | NDArray[np.int32]], pad: int, device: str) -> dict[str, torch.Tensor]:
    """`input_ids` and `attention_mask`, B x T, right-padded to the longest of the batch."""
    import torch

    lengths_B = np.array([len(row) for row in ids])
    mask_BT = np.arange(lengths_B.max()) < lengths_B[:, None]
    ids_BT = np.full(mask_BT.shape, pad, dtype=np.int64)
    ids_BT[mask_BT] = np.concatenate(ids)
    arrays = {"input_ids": ids_BT, "attention_mask": mask_BT.astype(np.int64)}
    return {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}


def encode(
    model: SentenceTransformer,
    sentences: Sequence[str],
    *,
    prompt: str | Sequence[str | None] | None = None,
    bf16: bool = False,
) -> NDArray[np.float32]:
    """Encode sentences, N x D in the order given; in bfloat16 autocast on a GPU or with `bf16`, else in float32.

    D is the encoder's width, or its `truncate_dim` where that is set. `prompt` comes before every sentence, or is a list with
    one for each; None leaves it to the encoder's own default prompt, if it has one.
    """
    default = prompt_of(model, None)
    asked = [prompt] * len(sentences) if prompt is None or isinstance(prompt, str) else prompt
    before = [default if own is None else own for own in asked]
    texts = [own + sentence for own, sentence in zip(before, sentences, strict=True)]
    if _leaves_prompt_out(model) and any(before):
        out = _encode_prompted(model, sentences, before)
    elif reads_tokens(model):
        out = encode_ids(model, token_ids(model, texts), bf16=bf16)
    elif reader := word_reader(model):
        out = _encode_words(model, reader, texts)
    else:
        out = _encode_prompted(model, sentences, before)
    bad = ~np.isfinite(out).all(axis=1)
    if bad.any():
        raise FloatingPointError(f"the encoder's vector is not finite for {sentences[int(bad.argmax())]!r:.200}")
    return out


def encode_documents(model: SentenceTransformer, texts: Sequence[str], batch: int) -> NDArray[np.float32]:
    """As sentence-transformers encodes documents, with their prompt, their route, and the model's `truncate_dim`, N x D."""
    if (reader := word_reader(model)) is None:
        found = model.encode_document(list(texts), batch_size=batch, show_progress_bar=False)
        return np.asarray(found, dtype=np.float32)
    before = prompt_of(model, model.prompts.get("document"))
    return _encode_words(model, reader, [before + text for text in texts])


def _encode_prompted(model: SentenceTransformer, sentences: Sequence[str], before: Sequence[str]) -> NDArray[Any]:
    """As sentence-transformers encodes them: it may leave a prompt out of the mean, or put it elsewhere in a template."""
    from sentence_transformers.base.modules import Transformer

    size = BESIDE if isinstance(model[0], Transformer) else AT_ONCE
    out = np.empty((len(sentences), model.get_embedding_dimension() or 0), dtype=np.float32)
    for prompt in dict.fromkeys(before):
        places = [i for i, own in enumerate(before) if own == prompt]
        out[places] = model.encode(
            [sentences[i] for i in places], prompt=prompt, batch_size=size, show_progress_bar=False
        )
    return out


def has_token_table(model: SentenceTransformer) -> bool:
    """Whether the encoder begins with a vector for each token, as a static student does."""
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    return isinstance(model[0], StaticEmbedding)


_READERS: WeakKeyDictionary[Any, WordReader | None] = WeakKeyDictionary()
"""Of each static embedding that was used, what it remembers of words."""


def word_reader(model: SentenceTransformer) -> WordReader | None:
    """What reads words for a static embedding, if its tokenizer reads text word by word; None for any other encoder."""
    if not has_token_table(model):
        return None
    first: Any = model[0]
    if first not in _READERS:
        _READERS[first] = WordReader(first.tokenizer) if reads_by_word(first.tokenizer) else None
    return _READERS[first]


def _encode_words(model: SentenceTransformer, reader: WordReader, texts: Sequence[str]) -> NDArray[np.float32]:
    """As sentence-transformers encodes them, which tokenises every word of every text."""
    import torch

    out = np.empty((len(texts), model.get_embedding_dimension() or 0), dtype=np.float32)
    with torch.inference_mode():
        for start in range(0, len(texts), AT_ONCE):
            ids_T, begin_B = reader.ids(texts[start : start + AT_ONCE])
            given = {
                "input_ids": torch.from_numpy(ids_T).to(model.device),
                "offsets": torch.from_numpy(begin_B).to(model.device),
            }
            out[start : start + AT_ONCE] = _vectors(model, given)
    return out


def _vectors(model: SentenceTransformer, features: dict[str, torch.Tensor]) -> NDArray[np.float32]:
    """The vectors of a batch, B x D, cut at the model's `truncate_dim` as `SentenceTransformer.encode` cuts them."""
    vectors_BD: torch.Tensor = model(features)["sentence_embedding"][:, : model.truncate_dim]
    return vectors_BD.float().cpu().numpy()


def encode_ids(
    model: SentenceTransformer,
    ids: Sequence[Sequence[int] | NDArray[np.int32]],
    budget: int | None = None,
    *,
    bf16: bool = False,
) -> NDArray[np.float32]:
    """Vectors of tokenised sentences, N x D in the order given; `budget` as for `token_budget_batches`, or the device's.

    They are computed in bfloat16 autocast on a GPU or with `bf16`, else in float32.
    """
    import torch

    device, pad = model.device.type, model.tokenizer.pad_token_id or 0
    enough = ENOUGH_TOKENS if budget is None and device == "cpu" else None
    out: NDArray[np.float32] | None = None
    batches = token_budget_batches(
        np.array([len(i) for i in ids], dtype=np.int64), budget or TOKENS_PER_BATCH[device], enough
    )
    with torch.inference_mode(), torch.autocast(device, dtype=torch.bfloat16, enabled=bf16 or device == "cuda"):
        for batch in batches:
            vectors_BD = _vectors(model, padded([ids[i] for i in batch], pad, device))
            if out is None:
                out = np.empty((len(ids), vectors_BD.shape[1]), dtype=np.float32)
            elif vectors_BD.shape[1] != out.shape[1]:
                raise ValueError(
                    f"vectors of {out.shape[1]} and of {vectors_BD.shape[1]} dimensions; expected one width"
                )
            out[batch] = vectors_BD
    return np.empty((0, model.get_embedding_dimension() or 0), dtype=np.float32) if out is None else out
