"""What a student starts from whose first layer is not the encoder's first: each token's mean state after the layers that it
skips (`encoders.layers.InputEmbeddings`).

A state depends on the sentence. So it is the mean over a sample of training sentences, and over the token on its own, which
says something of tokens that no sentence has. Axes: U tokens, V all of them, D width.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from distilbench.data.corpus import Rows
from distilbench.encoders.encoder import EncoderSpec, default_device
from distilbench.encoders.encoding import TOKENS_PER_BATCH, padded, token_budget_batches
from distilbench.encoders.layers import InputEmbeddings, LayerList, TokenStates
from distilbench.encoders.student import StudentSpec, count_layers, listed_layers, load_student, student_source
from distilbench.prepare.pool import progress
from distilbench.prepare.static_start import around_a_token
from distilbench.prepare.tokens import Tokens, load_tokens
from distilbench.storage.arrays import array_sha256, load_array, save_array
from distilbench.storage.store import ArtifactStore

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

SENTENCES, TOKENS = 6000, 200_000
"""Training sentences at most whose states are read, and their tokens."""
ENOUGH_SENTENCES = 1000
"""Sentences up to which a sample takes as many tokens as they have."""
ALONE = 2.0
"""Sentences that a token on its own counts as."""
STATES, NORM = "states.npy", "norm.npy"
STEP_VERSION = 1


def skipped_layers_artifact(
    student: str, teacher: EncoderSpec, pooling: str, tokens: Path, train: Rows, store: ArtifactStore
) -> Path | None:
    """The folder with the states of all tokens, V x D, made in this process if it is not there; `tokens` is the artifact of
    the student's.

    None for a student that skips no layer before its first one, or whose embeddings cannot stand for layers.
    """
    spec = StudentSpec.parse(student)
    first = listed_layers(student, count_layers(student, teacher))[0] if spec.is_layers else 0
    if first == 0:
        return None
    source = student_source(student, teacher)
    if InputEmbeddings.of(source.skeleton()[0].model) is None:
        return None
    ids = load_tokens(tokens)
    sampled = sample_rows(train, ids, SENTENCES, TOKENS)
    parts = {
        "encoder": source.identity(),
        "layers": first,
        "tokens": tokens.name,
        "train": array_sha256(sampled),
        "step_version": STEP_VERSION,
    }

    def make(folder: Path, missing: list[str]) -> None:
        skipped = replace(spec, rule=f"layers:{','.join(map(str, range(first)))}")
        model = load_student(str(skipped), teacher, default_device(), pooling)
        layers = LayerList(model[0].model, f"--student {student}").layers
        every = np.arange(model[0].model.get_input_embeddings().num_embeddings)
        [found] = mean_states(model, layers[-1:], [ids[int(row)] for row in sampled], every)
        save_array(folder / STATES, found.states_UD)
        save_array(folder / NORM, np.stack([found.mean_D, found.deviation_D]))

    return store.build("skipped-layers", parts, [STATES, NORM], make)


def load_skipped_layers(folder: Path) -> TokenStates:
    """The states of all tokens kept in an artifact folder, memory-mapped."""
    mean_D, deviation_D = np.load(folder / NORM, allow_pickle=False)
    return TokenStates(load_array(folder / STATES), mean_D, deviation_D)


def embeddings_setter(
    model: SentenceTransformer, layers: Sequence[nn.Module], ids: Tokens, train: Rows, rows: Rows
) -> Callable[[int], None]:
    """What has a model's embeddings stand for so many of its first `layers`, which it has all: 0 is as they are now.

    They stand as in `skipped_layers_artifact`, but that only the tokens of the sentences `rows` are sure to have vectors.
    """
    embeddings = InputEmbeddings.of(model[0].model)
    if embeddings is None or len(layers) == 1:
        return lambda count: None
    sampled, own = sample_rows(train, ids, SENTENCES, TOKENS), copy.deepcopy(embeddings.parts.state_dict())
    tokens_U = np.unique(ids.flat(np.union1d(sampled, rows))[0])
    states = mean_states(model, layers[:-1], [ids[int(row)] for row in sampled], tokens_U)

    def stand_for(count: int) -> None:
        embeddings.parts.load_state_dict(own)
        if count:
            embeddings.stand_for(tokens_U, states[count - 1])

    return stand_for


def sample_rows(train: Rows, tokens: Tokens, sentences: int, most: int) -> Rows:
    """A fixed sample of the training sentences, rising rows: at most so many, and, of more than `ENOUGH_SENTENCES`, at most
    `most` tokens: long documents take as long as short ones."""
    drawn = np.random.default_rng(0).permutation(train)[:sentences]
    within = int(np.searchsorted(np.cumsum(tokens.lengths_of(drawn)), most, side="right"))
    return np.sort(drawn[: max(within, ENOUGH_SENTENCES)])


def mean_states(
    model: SentenceTransformer,
    layers: Sequence[nn.Module],
    sentences: Sequence[NDArray[np.int32]],
    tokens_U: NDArray[np.int64],
) -> list[TokenStates]:
    """The tokens' mean states after each of the model's `layers`, over the sentences (ids) and over the token alone."""
    before, after = around_a_token(model)
    alone = [[*before, int(token), *after] for token in tokens_U]
    device, pad = model.device.type, int(model.tokenizer.pad_token_id or 0)
    table = model[0].model.get_input_embeddings()
    place_V = torch.full((table.num_embeddings,), len(tokens_U), device=device)
    place_V[torch.from_numpy(tokens_U).to(device)] = torch.arange(len(tokens_U), device=device)
    width = int(model[0].get_embedding_dimension())
    sums = [torch.zeros((len(tokens_U) + 1, width), device=device) for _ in layers]
    weight_U = torch.zeros(len(tokens_U) + 1, device=device)

    def read(ids: Sequence[Any], weight: float, column: int | None) -> None:
        features = padded(ids, pad, device)
        counted_BT = features["attention_mask"].bool()
        if column is not None:
            counted_BT = counted_BT & (torch.arange(counted_BT.shape[1], device=device) == column)
        place_T = place_V[features["input_ids"][counted_BT]]
        model(features)
        weight_U.index_add_(0, place_T, torch.full(place_T.shape, weight, device=device))
        for layer, total_UD in zip(layers, sums, strict=True):
            total_UD.index_add_(0, place_T, weight * seen[layer][counted_BT])

    def keep(layer: nn.Module, _: Any, out: Any) -> None:
        seen[layer] = out[0] if isinstance(out, tuple) else out

    seen: dict[nn.Module, Any] = {}
    hooks = [layer.register_forward_hook(keep) for layer in layers]
    with torch.inference_mode(), progress("Token states", len(alone) + len(sentences), "texts") as advance:
        for texts, weight, column in ((alone, ALONE, len(before)), (sentences, 1.0, None)):
            lengths = np.array([len(text) for text in texts], dtype=np.int64)
            for batch in token_budget_batches(lengths, TOKENS_PER_BATCH[device]):
                read([texts[i] for i in batch], weight, column)
                advance(len(batch))
    for hook in hooks:
        hook.remove()
    seen_U = (weight_U > ALONE)[:-1].cpu().numpy()
    means = [(total_UD / weight_U[:, None])[:-1].cpu().numpy() for total_UD in sums]
    return [TokenStates(m_UD, m_UD[seen_U].mean(axis=0), m_UD[seen_U].std(axis=0)) for m_UD in means]
