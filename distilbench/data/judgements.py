"""Training for retrieval: queries with the passages that judgements of the split "train" find relevant.

NAME/retrieval/queries.train.tsv, qrels.train.tsv   beside NAME/corpus.tsv; or BEIR's NAME/qrels/train.tsv (`retrieval_sets`)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.data.folder import Limits
from distilbench.data.retrieval_sets import TRAIN, Layout, check_documents, judged_queries, layouts, texts_of
from distilbench.data.sampling import draw_evenly
from distilbench.data.training_text import asked_rows
from distilbench.errors import InputError


def with_judgements(corpus: Corpus, root: Path | None, limits: Limits, *, passages: bool) -> Corpus:
    """`corpus`, training also on the queries and relevant passages of the judgements of `root` (None: no folder).

    Of `limits.pairs` pairs at most, none with a text that a dev or test set asks about. With `passages` also as many of the
    other passages as `limits.documents` allows, for negatives to be found among. Its own sentences keep their rows.
    """
    found = [layout for layout in layouts(root) if TRAIN in layout.qrels] if root else []
    if not found:
        return corpus
    asked = {corpus.sentences[row] for row in asked_rows(corpus)}
    builder = CorpusBuilder(corpus.name)
    builder.rows(corpus.sentences)
    judged, others, notes = list[tuple[int, int]](), list[int](), list[str]()
    left = limits.pairs
    for layout in found:
        pairs, more, total = _read(layout, asked, left, limits.documents if passages else 0)
        left = None if left is None else max(0, left - len(pairs))
        queries, relevant = (builder.rows([pair[side] for pair in pairs]).tolist() for side in (0, 1))
        judged += zip(queries, relevant, strict=True)
        others += builder.rows(more).tolist()
        notes.append(
            f"{layout.name} retrieval, train: training on {len(pairs):,} of {total:,} pairs of a query and a relevant passage"
            + (f"; {len(more):,} other passages to find negatives among" if passages else "")
        )
    judged_P2 = np.unique(np.array(judged, dtype=np.int64).reshape(-1, 2), axis=0)
    return replace(
        corpus,
        sentences=builder.sentences,
        train=np.union1d(corpus.train, judged_P2.ravel()),
        judged_P2=judged_P2,
        passages=np.union1d(judged_P2[:, 1], np.array(others, dtype=np.int64)) if passages else corpus.passages,
        found=(*corpus.found, *notes),
    )


def _read(
    layout: Layout, asked: set[str], most: int | None, more: int | None
) -> tuple[list[tuple[str, str]], list[str], int]:
    """Texts of pairs of a query and a relevant passage, `more` other passages (None: all), and how many pairs there are.

    Whole queries are drawn, with all their passages, until there are `most` pairs: no relevant passage is unknown then.
    """
    judged = judged_queries(layout, TRAIN)
    names, drawn, pairs = list(judged.queries), list[str](), 0
    for place in np.random.default_rng(0).permutation(len(names)).tolist():
        if most is not None and pairs >= most:
            break
        if judged.queries[names[place]] not in asked:
            drawn.append(names[place])
            pairs += len(judged.grades[names[place]])
    needed = {doc: judged.needed[doc] for query in drawn for doc in judged.grades[query]}
    texts = dict[str, str]()

    def other_passages() -> Iterator[tuple[str, str]]:
        for row, doc, text in texts_of(layout.corpus, layout.documents):
            if doc in texts:
                raise InputError(f"{layout.corpus}, row {row}: document id {doc!r} is there already; expected it once")
            if doc in needed:
                texts[doc] = text
            elif text not in asked:
                yield text, ""

    others, _ = draw_evenly(other_passages(), more)
    check_documents(layout, TRAIN, needed, texts)
    relevant = set(texts.values())
    kept = [
        (judged.queries[query], texts[doc])
        for query in drawn
        for doc in judged.grades[query]
        if texts[doc] not in asked and texts[doc] != judged.queries[query]
    ]
    total = sum(map(len, judged.grades.values()))
    return kept, [text for text in others if text not in relevant], total
