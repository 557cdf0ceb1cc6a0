"""Training sentences from `--text`, as many as there are: read once, kept distinct on disk, never all in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from distilbench.data.corpus import Corpus
from distilbench.data.distinct import KEY, write_distinct
from distilbench.data.sentences import TEXT, SentenceFile, in_batches, sentences_artifact, write_sentences
from distilbench.data.text import Texts, TextStream
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
    streams = texts.open()
    test_rows = sorted(asked_rows(corpus))
    parts = {
        "sources": [stream.identity() for stream in streams],
        "settings": [texts.column, texts.skip_bad_rows],
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
        known_rows: list[int] = []
        write_sentences(folder / NEW, _unknown(SentenceFile(drawn), row_of, known_rows))
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
    columns = [side for s in corpus.sts for side in (s.left_P, s.right_P)]
    columns += [task.queries for task in corpus.retrieval]
    for pair_task in (*corpus.pair_tasks, *corpus.probed):
        columns += [side for n, s in pair_task.splits.items() if n != "train" for side in (s.left_P, s.right_P)]
    for labelled in corpus.classification:
        asked_N = labelled.split_N != "train"
        columns += [side[asked_N] if asked_N.any() else side for side in labelled.texts]  # all, where cross-validated
    return {row for column in columns for row in column.tolist()}


def _keyed(streams: Sequence[TextStream]) -> Iterator[pa.RecordBatch]:
    for stream in streams:
        for batch in in_batches(text for text, _ in stream):
            text = pa.array(batch, pa.string())
            yield pa.record_batch([text, text], schema=KEYED)


def _unknown(drawn: SentenceFile, row_of: dict[str, int], known_rows: list[int]) -> Iterator[str]:
    """The drawn sentences that the corpus has not; the rows of the others go to `known_rows`."""
    for text in drawn:
        if text in row_of:
            known_rows.append(row_of[text])
        else:
            yield text
