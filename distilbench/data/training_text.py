"""What a run trains on beside the text of its data folder: sentences from `--text`, and judged queries.

Sentences of `--text` may be as many as there are: they are read once, kept distinct on disk, and never all in memory.
Judgements to train on are those of the split `train` (`retrieval_sets`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.data.distinct import KEY, Distinct, write_distinct
from distilbench.data.folder import Limits
from distilbench.data.retrieval_sets import TRAIN, Layout, check_documents, judged_queries, layouts, texts_of
from distilbench.data.roles import DOCUMENT, PLAIN, QUERY
from distilbench.data.sampling import draw_evenly
from distilbench.data.sentences import TEXT, SentenceFile, in_batches, sentences_artifact, write_sentences
from distilbench.data.text import Texts, TextStream, open_text
from distilbench.errors import InputError
from distilbench.storage.arrays import save_array
from distilbench.storage.files import fingerprint, write_json
from distilbench.storage.store import ArtifactStore

STEP_VERSION = 1
NEW, KNOWN, TOLD, ROLES = "text.arrow", "known.npy", "found.json", "roles.npy"
KEYED = pa.schema([(KEY, pa.string()), (TEXT, pa.string())])


def with_text(corpus: Corpus, texts: Texts, limit: int | None, store: ArtifactStore) -> Corpus:
    """`corpus`, training also on at most `limit` distinct sentences of `texts` (None: all), none that a dev or test set asks
    about (STS, classification and pair task sentences, retrieval queries).

    Sentences that `corpus` has already become training rows, the others come after its sentences. Which are drawn does not
    depend on their order: a limit is shared by queries, passages and other sentences (`data.text.ROLE_OF`). Memory: that of
    `write_distinct`, and 8 bytes for each training row.
    """
    if not texts.sources:
        return corpus
    streams = [part for source in texts.sources for part in open_text(source, texts.column).by_role()]
    roles = [role for role in (QUERY, DOCUMENT, PLAIN) if role in {stream.role for stream in streams}]
    test_rows = sorted(asked_rows(corpus))
    parts = {
        "sources": [stream.identity() for stream in streams],
        "column": texts.column,
        "sentences": corpus.sentences_fingerprint,
        "asked": fingerprint(test_rows),
        "limit": limit,
        "step_version": STEP_VERSION,
        **({"roles": [stream.role for stream in streams]} if any(roles) else {}),
    }

    def make(folder: Path, missing: list[str]) -> None:
        excluded, files, counts = [[corpus.sentences[row] for row in test_rows]], list[Path](), list[Distinct]()
        for role in roles:
            kept = sum(of_role.kept for of_role in counts)
            share = None if limit is None else -(-(limit - kept) // (len(roles) - len(counts)))
            source, file = _keyed([s for s in streams if s.role == role]), folder / f"drawn-{role}.arrow"
            counts.append(write_distinct(file, source, KEYED, [*excluded, *map(SentenceFile, files)], limit=share))
            files.append(file)
        drawn = SentenceFile(*files)
        row_of = {sentence: row for row, sentence in enumerate(corpus.sentences)}
        write_sentences(folder / NEW, (text for text in drawn if text not in row_of))
        known_rows = [row_of[text] for text in drawn if text in row_of]
        save_array(folder / KNOWN, np.array(known_rows, dtype=np.int64))
        if any(roles):
            roles_A = np.repeat(roles, [of_role.kept for of_role in counts])
            known_A = np.fromiter((text in row_of for text in drawn), dtype=bool)
            save_array(folder / ROLES, np.concatenate([roles_A[known_A], roles_A[~known_A]]))
        for file in files:
            file.unlink()
        read, taken, repeated, kept = (sum(column) for column in zip(*map(astuple, counts), strict=True))
        elsewhere = ", or that files of another kind have" if len(roles) > 1 else ""
        lines = [f"--text {stream.source}: {stream.summary()}" for stream in streams]
        lines.append(
            f"training on {kept:,} distinct of {read:,} sentences of --text; {taken:,} left out (text that a dev or test set "
            f"asks about{elsewhere}), {repeated:,} repeated"
        )
        write_json(folder / TOLD, lines)

    path = store.build("text", parts, [NEW, KNOWN, TOLD, *([ROLES] if any(roles) else [])], make)
    base = sentences_artifact(corpus.sentences, corpus.sentences_fingerprint, store)
    sentences = SentenceFile(*base.paths, path / NEW)
    known_rows = np.load(path / KNOWN, allow_pickle=False)
    added = np.concatenate([known_rows, np.arange(len(base), len(sentences))])
    roles_A = np.load(path / ROLES, allow_pickle=False) if any(roles) else np.full(len(added), PLAIN)
    train = np.union1d(corpus.train, added)
    if not len(train):
        raise InputError(f"--text {', '.join(texts.sources)}: no sentence to train on")
    notes = (*corpus.found, *json.loads((path / TOLD).read_text()))
    return replace(
        corpus,
        sentences=sentences,
        train=train,
        text_queries=np.union1d(corpus.text_queries, added[roles_A == QUERY]),
        text_passages=np.union1d(corpus.text_passages, added[roles_A == DOCUMENT]),
        found=notes,
    )


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

    Of `limits.pairs` pairs at most, shared evenly by the sets, none with a text that a dev or test set asks about. With
    `passages` also as many of the other passages as `limits.documents` allows, for negatives to be found among. Its own
    sentences keep their rows.
    """
    found = [layout for layout in layouts(root) if TRAIN in layout.qrels] if root else []
    found.sort(key=lambda layout: layout.qrels[TRAIN].stat().st_size)  # what a small one leaves, larger ones have
    if not found:
        return corpus
    asked = {corpus.sentences[row] for row in asked_rows(corpus)}
    builder = CorpusBuilder(corpus.name)
    builder.rows(corpus.sentences)
    judged, others, notes = list[tuple[int, int]](), list[int](), list[str]()
    left = limits.pairs
    for place, layout in enumerate(found):
        share = None if left is None else -(-left // (len(found) - place))
        pairs, more, total = _read(layout, asked, share, limits.documents if passages else 0)
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
