"""What a run trains on beside the text of its data folder: sentences from `--text`, and judged queries.

Sentences of `--text` may be as many as there are: they are read once, kept distinct on disk, and never all in memory.
Judgements to train on are those of the split `train` (`retrieval_sets`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.data.distinct import KEY, write_distinct
from distilbench.data.folder import Limits
from distilbench.data.retrieval_sets import TRAIN, Layout, check_documents, judged_queries, layouts, texts_of
from distilbench.data.sampling import draw_evenly
from distilbench.data.sentences import TEXT, SentenceFile, in_batches, sentences_artifact, write_sentences
from distilbench.data.text import Texts, TextStream, open_text
from distilbench.errors import InputError
from distilbench.storage.arrays import save_array
from distilbench.storage.files import fingerprint, write_json
from distilbench.storage.store import ArtifactStore

STEP_VERSION = 1
NEW, KNOWN, TOLD = "text.arrow", "known.npy", "found.json"
KEYED = pa.schema([(KEY, pa.string()), (TEXT, pa.string())])


def with_text(corpus: Corpus, texts: Texts, limit: int | None, store: ArtifactStore) -> Corpus:
    """`corpus`, training also on at most `limit` distinct sentences of `texts` (None: all), none that a dev or test set asks
    about (STS, classification and pair task sentences, retrieval queries).

    Sentences that `corpus` has already become training rows, the others come after its sentences. Which are drawn does not
    depend on their order. Memory: that of `write_distinct`, and 8 bytes for each training row.
    """
    if not texts.sources:
        return corpus
    streams = [open_text(source, texts.column) for source in texts.sources]
    test_rows = sorted(asked_rows(corpus))
    parts = {
        "sources": [stream.identity() for stream in streams],
        "column": texts.column,
        "sentences": corpus.sentences_fingerprint,
        "asked": fingerprint(test_rows),
        "limit": limit,
        "step_version": STEP_VERSION,
    }

    def make(folder: Path, missing: list[str]) -> None:
        drawn = folder / "drawn.arrow"
        counts = write_distinct(
            drawn, _keyed(streams), KEYED, [[corpus.sentences[row] for row in test_rows]], limit=limit
        )
        row_of = {sentence: row for row, sentence in enumerate(corpus.sentences)}
        write_sentences(folder / NEW, (text for text in SentenceFile(drawn) if text not in row_of))
        known_rows = [row_of[text] for text in SentenceFile(drawn) if text in row_of]
        save_array(folder / KNOWN, np.array(known_rows, dtype=np.int64))
        drawn.unlink()
        lines = [f"--text {stream.source}: {stream.summary()}" for stream in streams]
        lines.append(
            f"training on {counts.kept:,} distinct of {counts.read:,} sentences of --text; {counts.taken:,} left out (text "
            f"that a dev or test set asks about), {counts.repeated:,} repeated"
        )
        write_json(folder / TOLD, lines)

    path = store.build("text", parts, [NEW, KNOWN, TOLD], make)
    base = sentences_artifact(corpus.sentences, corpus.sentences_fingerprint, store)
    sentences = SentenceFile(*base.paths, path / NEW)
    known_rows = np.load(path / KNOWN, allow_pickle=False)
    train = np.union1d(corpus.train, np.concatenate([known_rows, np.arange(len(base), len(sentences))]))
    if not len(train):
        raise InputError(f"--text {', '.join(texts.sources)}: no sentence to train on")
    notes = (*corpus.found, *json.loads((path / TOLD).read_text()))
    return replace(corpus, sentences=sentences, train=train, found=notes)


def asked_rows(corpus: Corpus) -> set[int]:
    """Rows of the sentences that a dev or test set asks about, on which no student is trained."""
    columns = [side for s in corpus.sts for side in s.columns]
    columns += [task.queries for task in corpus.retrieval]
    for pair_task in (*corpus.pair_tasks, *corpus.probed):
        columns += [side for n, s in pair_task.splits.items() if n != "train" for side in (s.left_P, s.right_P)]
    for labelled in corpus.classification:
        asked_N = labelled.split_N != "train"
        columns += [side[asked_N] if asked_N.any() else side for side in labelled.columns]  # all, where cross-validated
    return {row for column in columns for row in column.tolist()}


def _keyed(streams: Sequence[TextStream]) -> Iterator[pa.RecordBatch]:
    for stream in streams:
        for batch in in_batches(text for text, _ in stream):
            text = pa.array(batch, pa.string())
            yield pa.record_batch([text, text], schema=KEYED)


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
        for doc, text in texts_of(layout):
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
        if doc in texts and texts[doc] not in asked and texts[doc] != judged.queries[query]
    ]
    total = sum(map(len, judged.grades.values()))
    return kept, [text for text in others if text not in relevant], total
