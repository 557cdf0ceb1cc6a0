"""What a trial reads is what the driver prepared, wherever the trial's worker runs."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from distilbench.data.corpus import Copies, Corpus, CorpusBuilder, PairSplit, PairTask
from distilbench.data.sentences import CorpusText
from distilbench.encoders.encoder import EncoderSpec
from distilbench.prepare.nearest import nearest_artifact
from distilbench.prepare.pca import pca_artifact
from distilbench.prepare.prepared import LOGITS, Artifacts, StudentArtifacts, load_prepared
from distilbench.prepare.selection_sets import dev_sets
from distilbench.prepare.tokens import tokens_artifact
from distilbench.storage.arrays import ShardedArray, save_array, shard_name
from distilbench.storage.files import write_json
from distilbench.storage.store import ArtifactStore

NAMES = [("STS12", "test"), ("STSB", "test"), ("STSB", "dev"), ("SICK", "dev")]


def corpus(*names: tuple[str, str]) -> Corpus:
    builder = CorpusBuilder("c")
    for i, (group, split) in enumerate(names or NAMES):
        builder.add_sts(group, "", split, ["a dog", f"the cat {i}"], ["one dog", "a cat"], [i, 5])
    builder.add_pairs(["the dog runs", "a cat"], ["the dog walks", "one cat"])
    builder.train_on(["the dog runs", "a cat", "the dog walks", "one cat", "a child"])
    builder.train_triplets(["a dog"], ["the dog"], ["a river"])
    sides = builder.rows(["a cat", "the cat 1"]), builder.rows(["one cat", "a child"])
    splits = dict.fromkeys(("train", "dev"), PairSplit(*sides, np.array([2.0, 0.0])))
    builder.pair_tasks.append(PairTask("NLI", "three-class", ("no", "maybe", "yes"), 0, 1, splits))
    copies = Copies(np.array([3, 1]), np.array([0, 0]), np.array([0, 0], dtype=np.int8), ("swap",))
    return replace(builder.build(), copies=copies)


def prepare(
    root: Path, encoder: str, *, tokens: bool = True, student: str = "half", task: bool = False
) -> tuple[Path, ShardedArray]:
    """A prepared folder below `root`, and the vectors it points at."""
    made, store = corpus(), ArtifactStore(root / "store")
    teacher = EncoderSpec(encoder, prompt="how ", max_tokens=20)
    values = np.random.default_rng(0).normal(size=(len(made.sentences), 6)).astype(np.float16)
    embeddings = store.path("embeddings", {"of": "x"})
    save_array(embeddings / shard_name(0), values)
    vectors = ShardedArray(embeddings, len(values), 6, 512)
    pca = pca_artifact(vectors, made.train, store)
    ids = tokens_artifact(CorpusText(made.sentences, "key"), teacher, store) if tokens else None
    logits: Path | None = store.path("logits", {"of": "x"})
    save_array(logits / LOGITS, np.array([[0.5, -1, 2], [0, 3, 1]], dtype=np.float32))
    if not task:
        made, logits = replace(made, pair_tasks=()), None
    near = nearest_artifact(vectors, made.train, 2, store)
    own = StudentArtifacts(student, tokens=ids)
    Artifacts(made, teacher, vectors, pca, own, logits, nearest=near).save(root / "prepared")
    return root / "prepared", vectors


def test_everything_comes_back(tmp_path: Path, encoder_folder: Path) -> None:
    folder, vectors = prepare(tmp_path, str(encoder_folder))
    made, kept = corpus(), load_prepared(folder)
    assert (kept.teacher, kept.student) == (EncoderSpec(str(encoder_folder), prompt="how ", max_tokens=20), "half")
    assert kept.vectors == vectors
    np.testing.assert_array_equal(kept.train, made.train)
    np.testing.assert_array_equal(kept.pairs_P2, made.pairs_P2)
    np.testing.assert_array_equal(kept.triplets_T3, made.triplets_T3)
    np.testing.assert_array_equal(kept.augmented, [3, 1])
    assert kept.pair_task is None and kept.logits_PC is None
    assert kept.pca.axes_DD.shape == (6, 6) and kept.nearest_NK is not None
    assert kept.nearest_NK.shape == (len(made.train), 2)
    assert kept.tokens is not None and len(kept.tokens.offsets) == len(made.sentences) + 1
    (dev,) = kept.dev
    wanted = made.sts[2]
    assert (dev.name, dev.split) == ("STSB", "dev")
    for column in ("left_P", "right_P", "score_P"):
        np.testing.assert_array_equal(getattr(dev, column), getattr(wanted, column))


def test_a_pair_task_comes_back_with_the_cross_encoders_logits(tmp_path: Path, encoder_folder: Path) -> None:
    kept = load_prepared(prepare(tmp_path, str(encoder_folder), task=True)[0])
    [wanted] = corpus().pair_tasks
    assert kept.pair_task is not None and kept.pair_task.splits.keys() == {"train", "dev"}
    assert replace(kept.pair_task, splits={}) == replace(wanted, splits={})
    for name, split in wanted.splits.items():
        for column in ("left_P", "right_P", "target_P"):
            np.testing.assert_array_equal(getattr(kept.pair_task.splits[name], column), getattr(split, column))
    np.testing.assert_array_equal(kept.logits_PC, [[0.5, -1, 2], [0, 3, 1]])


def test_a_sweep_of_heads_has_no_tokens(tmp_path: Path, encoder_folder: Path) -> None:
    assert load_prepared(prepare(tmp_path, str(encoder_folder), tokens=False)[0]).tokens is None


@pytest.mark.parametrize("student", ["half", "./tiny"])
def test_paths_hold_in_another_working_folder(
    tmp_path: Path, encoder_folder: Path, monkeypatch: pytest.MonkeyPatch, student: str
) -> None:
    # `--store here --teacher ./tiny`: Tune runs every trial in a folder of its own.
    (tmp_path / "here").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "here" / "tiny").symlink_to(encoder_folder)
    monkeypatch.chdir(tmp_path / "here")
    folder, _ = prepare(Path("."), "./tiny", student=student)
    absolute = folder.resolve()
    monkeypatch.chdir(tmp_path / "elsewhere")
    kept = load_prepared(absolute)
    assert kept.vectors.take(np.array([0])).shape == (1, 6)
    assert kept.teacher.width() == 32
    assert kept.teacher.title == "tiny"
    assert kept.student == "half" or EncoderSpec(kept.student).width() == 32


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (NAMES, ["STSB"]),  # as in the papers
        ([("SICK", "dev"), ("DEMO", "dev"), ("STSB", "test")], ["SICK", "DEMO"]),
        ([("STSB", "test")], []),  # a test set never selects
    ],
)
def test_dev_sets_select(names: list[tuple[str, str]], chosen: list[str]) -> None:
    assert [(s.name, s.split) for s in dev_sets(corpus(*names))] == [(name, "dev") for name in chosen]


def test_what_is_prepared_anew_is_read_anew(tmp_path: Path, prepared_folder: Path) -> None:
    folder = Path(shutil.copytree(prepared_folder, tmp_path / "prepared"))
    first = load_prepared(folder)
    assert load_prepared(folder) is first
    kept = json.loads((folder / "prepared.json").read_text())
    write_json(folder / "prepared.json", {**kept, "tokens": None})
    assert first.tokens is not None and load_prepared(folder).tokens is None
