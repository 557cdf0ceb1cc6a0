"""Training on judged queries and passages with hard negatives: each method that can, and what its loss compares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from distilbench.data.corpus import CorpusBuilder
from distilbench.errors import InputError
from distilbench.methods import get_method
from distilbench.prepare.nearest import Candidates, nearest_documents
from distilbench.prepare.prepared import Prepared
from distilbench.training.phases import Learner

Build = Callable[..., Any]
RETRIEVAL: dict[str, dict[str, Any]] = {
    "contrastive": {"labelled": "retrieval", "hard_negatives": 3},
    "matryoshka": {"labelled": "retrieval", "hard_negatives": 2},
    "ibkd": {"labelled": "retrieval", "hard_negatives": 8},
    "hpd": {"labelled": "retrieval", "hard_negatives": 2, "ft_epochs": 1, "ft_batch_size": 8},
}


@pytest.fixture(scope="module")
def judged(prepared: Prepared) -> Prepared:
    """The similar pairs as judged queries and passages, with the teacher's candidates among the other sentences."""
    pairs = prepared.pairs_P2[:24]
    others = np.setdiff1d(prepared.train, pairs.ravel())
    queries = np.unique(pairs[:, 0])
    found, cosine = nearest_documents(prepared.vectors.take, queries, others, 12)
    return replace(prepared, judged_P2=pairs, candidates=Candidates(queries, others[found], cosine))


def loss_of(method: Learner) -> Callable[[np.ndarray[Any, Any]], torch.Tensor]:
    phase = method.phases()[-1]
    phase.begin()
    return phase.loss


@pytest.mark.parametrize("name", sorted(RETRIEVAL))
def test_a_loss_falls(build: Build, judged: Prepared, name: str) -> None:
    method = build(name, on=judged, dropout=False, **RETRIEVAL[name])
    phase = method.phases()[-1]
    assert phase.examples == len(judged.judged_P2)
    loss, index = loss_of(method), np.arange(8)
    optimiser = torch.optim.Adam([p for p in method.parameters() if p.requires_grad], lr=0.003)
    values = []
    for _ in range(12):
        torch.manual_seed(0)
        optimiser.zero_grad()
        value = loss(index)
        value.backward()
        optimiser.step()
        values.append(float(value.detach()))
    assert np.isfinite(values).all() and values[-1] < values[0]
    assert method.embed(judged.judged_P2[:3].ravel()).shape[0] == 6


@pytest.mark.parametrize("name", sorted(RETRIEVAL))
def test_too_few_judgements_are_refused_before_anything_runs(name: str) -> None:
    method, builder = get_method(name), CorpusBuilder("few")
    builder.train_on([f"sentence {i}" for i in range(40)])
    corpus = replace(builder.build(), judged_P2=np.array([[0, 1], [2, 3], [0, 4]]), passages=np.arange(1, 8))
    given = {**RETRIEVAL[name], "output_dim": 32, "batch_size": 2, "ft_batch_size": 2, "ft_epochs": 1}
    fields = method.params_type.model_fields

    def possible(**changed: Any) -> Callable[[str], list[Any]]:
        return lambda field: [{**given, **changed}.get(field, fields[field].default)]

    with pytest.raises(InputError, match=r"(ft_)?batch_size is 4, but the corpus has only 3 judged queries"):
        method.check_corpus(possible(batch_size=4, ft_batch_size=4), corpus, 32)
    with pytest.raises(InputError, match="hard_negatives is 5, but the corpus has only 4 passages to mine"):
        method.check_corpus(possible(hard_negatives=5), corpus, 32)
    method.check_corpus(possible(hard_negatives=4), corpus, 32)
    assert method.needs(possible()).negatives and not method.needs(possible(hard_negatives=0)).negatives
