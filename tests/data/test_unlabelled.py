"""Training sentences from text sources: beside a data folder, or instead of the built-in ones; evaluation text kept out."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from distilbench.data import reservoir, unlabelled
from distilbench.data.builtin import builtin_corpus
from distilbench.data.corpus import Corpus, StsSet
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.needs import Needs
from distilbench.data.text import Texts, TextSettings
from distilbench.errors import InputError

ALL = Limits(None, None, None)
OWN = [f"my own sentence {i}" for i in range(50)]


@pytest.fixture
def folder(tmp_path: Path, data_folder: Path) -> Path:
    """A copy of the small data folder that a test may change."""
    return Path(shutil.copytree(data_folder, tmp_path / "mine"))


@pytest.fixture
def own(tmp_path: Path) -> str:
    """A source of fifty sentences."""
    return lines(tmp_path / "own.txt", *OWN)


def lines(path: Path, *texts: str) -> str:
    path.write_text("".join(f"{t}\n" for t in texts))
    return str(path)


def trained(corpus: Corpus) -> list[str]:
    return [corpus.sentences[i] for i in corpus.train]


def test_text_is_trained_on_beside_a_data_folder(folder: Path, own: str) -> None:
    before, after = folder_corpus(folder, ALL), folder_corpus(folder, ALL, texts=Texts((own,)))
    assert trained(after) == trained(before) + OWN
    assert np.array_equal(before.pairs_P2, after.pairs_P2)
    assert f"--text {own}: 50 sentences (train)" in after.found
    assert "unlabeled/sentences.tsv: 80 sentences (train)" in after.found


def test_text_may_be_all_there_is_to_train_on(folder: Path, own: str) -> None:
    shutil.rmtree(folder / "unlabeled")
    (folder / "quora" / "pairs.tsv").unlink()
    assert trained(folder_corpus(folder, ALL, texts=Texts((own,)))) == OWN


def test_evaluation_text_is_kept_out(folder: Path, tmp_path: Path) -> None:
    without = folder_corpus(folder, ALL)
    dev = next(s for s in without.sts if s.split == "dev")
    leaks = [without.sentences[dev.left_P[0]], without.sentences[without.retrieval[0].queries[0]]]
    source = lines(tmp_path / "own.txt", leaks[0], "new", f"  {leaks[1]} ", "new")
    corpus = folder_corpus(folder, ALL, texts=Texts((source,)))
    assert trained(corpus) == [*trained(without), "new"]
    assert any("2 left out" in line for line in corpus.found)


def test_the_limit_is_for_all_sources_together(folder: Path, own: str, tmp_path: Path) -> None:
    more = lines(tmp_path / "more.txt", *(f"another {i}" for i in range(70)))
    limits = replace(ALL, sentences=60)
    one, two = (folder_corpus(folder, limits, texts=Texts((own, more))) for _ in range(2))
    assert one.fingerprint == two.fingerprint
    drawn = trained(one)[2 * 64 :]
    assert len(drawn) == 60
    kinds = {t.split()[0] for t in drawn}
    assert {"my", "another"} < kinds  # and of `unlabeled/` too
    assert any("60 distinct of 200 sentences" in line for line in one.found)


def test_a_stream_too_long_to_hold_is_sampled_as_it_comes(
    folder: Path, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = reservoir.draw_distinct
    monkeypatch.setattr(unlabelled, "draw_distinct", lambda sentences, limit: held(sentences, limit, held=100))
    corpus = folder_corpus(folder, replace(ALL, sentences=60), texts=Texts((own,)))
    drawn = trained(corpus)[2 * 64 :]
    everything = trained(folder_corpus(folder, ALL, texts=Texts((own,))))[2 * 64 :]
    assert drawn == reservoir.reservoir(everything, 60)


def test_unlabelled_files_may_be_of_any_format(folder: Path) -> None:
    plain = folder_corpus(folder, ALL)
    path = folder / "unlabeled" / "sentences.tsv"
    texts = path.read_text().splitlines()[1:]
    path.unlink()
    (path.parent / "a.csv").write_text("n,text\n" + "".join(f'1,"{t}"\n' for t in texts[:20]))
    objects = "".join(json.dumps({"text": t}) + "\n" for t in texts[20:40])
    (path.parent / "b.jsonl.gz").write_bytes(gzip.compress(objects.encode()))
    parquet.write_table(pa.table({"text": texts[40:60]}), path.parent / "c.parquet")
    lines(path.parent / "d.txt", *texts[60:])
    assert folder_corpus(folder, ALL).fingerprint == plain.fingerprint


def test_settings_hold_for_unlabelled_files_but_for_their_column(folder: Path, tmp_path: Path) -> None:
    lines(folder / "unlabeled" / "more.txt", "", "abc", "a sentence in the middle", "x" * 200)
    source = tmp_path / "own.tsv"
    source.write_text("satz\nein eigener Satz\nkurz\n")
    settings = TextSettings("satz", min_chars=5, max_chars=150, on_error="skip")
    corpus = folder_corpus(folder, ALL, texts=Texts((str(source),), settings))
    assert {"a sentence in the middle", "ein eigener Satz"} < set(trained(corpus))
    assert not {"abc", "kurz", "x" * 200} & set(trained(corpus))
    (line,) = [line for line in corpus.found if line.startswith("unlabeled/more.txt")]
    assert line.startswith(
        "unlabeled/more.txt: 1 sentences (train); 1 of fewer than 5 characters left out; 1 of more than 150 characters "
        "left out; 1 bad rows skipped, the first: "
    )
    assert "more.txt, row 1: the line is empty" in line
    with pytest.raises(InputError, match=r"more\.txt, row 1: the line is empty"):
        folder_corpus(folder, ALL, texts=Texts((str(source),), replace(settings, on_error="stop")))


def test_a_source_that_is_not_there_is_told_before_anything_is_read(folder: Path) -> None:
    (folder / "sts" / "STSB.dev.tsv").write_text("broken")
    with pytest.raises(InputError, match=r"nowhere\.txt: no such file or folder"):
        folder_corpus(folder, ALL, texts=Texts((str(folder / "nowhere.txt"),)))


def evaluated(corpus: Corpus) -> list[tuple[str, str, list[str], list[str]]]:
    def texts(sts: StsSet, rows: np.ndarray) -> list[str]:
        return [corpus.sentences[i] for i in rows]

    return [(s.name, s.split, texts(s, s.left_P), texts(s, s.right_P)) for s in corpus.sts]


def test_own_text_takes_the_place_of_the_built_in_training_sentences(own: str, tmp_path: Path) -> None:
    plain = builtin_corpus(50)
    asked = [plain.sentences[plain.sts[0].left_P[0]], plain.sentences[plain.retrieval[0].queries[0]]]
    leaking = lines(tmp_path / "leaking.txt", *asked, "and one more")
    corpus = builtin_corpus(50, texts=Texts((own, leaking)))
    assert trained(corpus) == [*OWN, "and one more"]
    assert len(corpus.pairs_P2) == 0 and corpus.demonstration and corpus.name != plain.name
    assert evaluated(corpus) == evaluated(plain)
    assert any("51 distinct of 51 sentences; 2 left out" in line for line in corpus.found)
    assert not any("50 similar training pairs" in line for line in corpus.found)
    assert len(trained(builtin_corpus(50, texts=Texts((own,)), limit=7))) == 7


def test_pair_tasks_of_the_built_in_corpus_stay_with_own_text(own: str) -> None:
    needs = Needs(triplets=True, pair_tasks=("DEMO-SIM",))
    corpus = builtin_corpus(20, needs=needs, texts=Texts((own,)))
    assert [t.name for t in corpus.pair_tasks] == ["DEMO-SIM"] and len(corpus.triplets_T3) == 20
    assert set(OWN) < set(trained(corpus))
    rows = set(corpus.train.tolist())
    assert rows.issuperset(corpus.triplets_T3.ravel().tolist())
    test = corpus.pair_tasks[0].splits["test"]
    assert not rows & {*test.left_P.tolist(), *test.right_P.tolist()}
