"""The ranking finds the layers that the targets were made of, and everything after it works from them."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from architectures import make_architecture
from rich.console import Console
from samples import make_encoder
from sentence_transformers import SentenceTransformer

from distilbench.commands.run_folder import run_config
from distilbench.data.corpus import Corpus, HeldOut, RetrievalSet, StsSet
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.requirements import Requirements
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import encode
from distilbench.encoders.student import load_student, student_source
from distilbench.evaluation.selection import SelectionSets, nearest
from distilbench.evaluation.sts import cosine, spearman
from distilbench.prepare import layer_ranking, skipped_layers, stage
from distilbench.prepare.layer_ranking import FILE, LayerRanker, LayerRanking, read_ranking, read_rankings, regressed
from distilbench.prepare.prepared import load_prepared
from distilbench.prepare.selection_sets import held_out_set
from distilbench.prepare.skipped_layers import load_skipped_layers, skipped_layers_artifact
from distilbench.prepare.stage import prepare_corpus
from distilbench.prepare.tokens import tokens_artifact
from distilbench.selection import METRICS, Kind, Part, Selection
from distilbench.settings.run import RunSettings
from distilbench.storage.arrays import ShardedArray, save_array, shard_name
from distilbench.storage.store import ArtifactStore


@pytest.fixture(scope="module")
def corpus(data_folder: Path) -> Corpus:
    return folder_corpus(data_folder, Limits(), Requirements())


class Planted:
    """An encoder, and a teacher whose vectors are a linear map of the pooled states of some of its layers.

    Students are selected by pairs whose gold scores are the cosines of the teacher's vectors, by queries for which its
    nearest document is the answer, or by the neighbours of held-out sentences.
    """

    def __init__(
        self,
        root: Path,
        corpus: Corpus,
        encoder: Path,
        layers: str,
        width: int,
        kind: Kind = "sts",
        documents: Literal["student", "teacher"] = "student",
    ) -> None:
        self.teacher, self.store, self.corpus = EncoderSpec(str(encoder)), ArtifactStore(root / "store"), corpus
        states = encode(self.student(layers), list(corpus.sentences))
        self.targets = states @ np.random.default_rng(3).normal(size=(states.shape[1], width)).astype(np.float32) + 1
        folder = self.store.path("embeddings", {"of": layers, "width": width})
        save_array(folder / shard_name(0), self.targets)
        self.vectors = ShardedArray(folder, len(self.targets), width, len(self.targets))
        dev = [s for s in corpus.sts if s.split == "dev"]
        gold = [cosine(self.targets[s.left_P], self.targets[s.right_P]) for s in dev]
        pairs = [replace(s, score_P=score) for s, score in zip(dev, gold, strict=True)]
        asked, stored = corpus.train[:60], corpus.train[60:]
        answers = nearest(self.targets[asked], self.targets[stored], 1)
        search = RetrievalSet("planted", "dev", asked, stored, tuple(answers))
        held = held_out_set(HeldOut("dev", corpus.train), self.vectors.take)
        sets = {"sts": tuple(pairs), "retrieval": (search,), "fidelity": (held,)}
        selection = Selection((Part(kind, METRICS[kind]),), documents=documents)
        self.judged = SelectionSets(selection, {kind: sets[kind]})

    def student(self, layers: str) -> SentenceTransformer:
        """These layers of the encoder, whose embeddings stand for those before the first."""
        tokens = tokens_artifact(self.corpus.text, self.teacher, self.store)
        folder = skipped_layers_artifact(layers, self.teacher, "mean", tokens, self.corpus.train, self.store)
        skipped = None if folder is None else load_skipped_layers(folder)
        return load_student(layers, self.teacher, "cpu", skipped=skipped)

    def artifact(self, student: str, pooling: str = "mean", quick: bool = False) -> Path:
        source = student_source(student, self.teacher)
        tokens = tokens_artifact(self.corpus.text, source, self.store)
        train = self.corpus.train
        given = (student, self.teacher, pooling, self.vectors, tokens, train, self.judged)
        return LayerRanker(*given, quick=quick).artifact(self.store)

    def rank(self, student: str, *, quick: bool = False) -> LayerRanking:
        found = read_ranking(self.artifact(student, quick=quick))
        assert found is not None
        return found


@pytest.mark.parametrize(
    ("kind", "dev", "measure"),
    [
        ("sts", "STSB dev", "STS average"),
        ("retrieval", "planted dev", "nDCG@10"),
        ("fidelity", "own text dev", "Fidelity"),
    ],
)
@pytest.mark.parametrize("planted", ["layers:0,2", "layers:0,3", "layers:2"])
def test_the_layers_that_the_teacher_was_made_of_win(
    corpus: Corpus, encoder_folder: Path, tmp_path: Path, planted: str, kind: Kind, dev: str, measure: str
) -> None:
    made = Planted(tmp_path, corpus, encoder_folder, planted, 48, kind)
    choices = [(0, 1), (0, 2), (0, 3)] if "," in planted else [(0,), (1,), (2,), (3,)]
    depth = len(choices[0])
    found = made.rank(f"auto:{depth}")
    assert f"layers:{','.join(map(str, found.chosen))}" == planted
    assert (found.count, found.depth, found.search, found.first_sentences) == (4, depth, "every choice", 0)
    assert found.tried == len(choices) and sorted(c.layers for c in found.choices) == choices
    assert (found.dev, found.measure) == ((dev,), measure)
    best, second = found.choices[:2]
    assert best.regressed > 98 > second.regressed


def test_a_student_that_embeds_queries_alone_may_do_without_the_first_layer_where_text_is_little(
    corpus: Corpus, encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Planted(tmp_path, corpus, encoder_folder, "layers:1,3", 48, "retrieval", "teacher")
    found = made.rank("auto:2")
    assert found.chosen == (1, 3) and "all 6 choices on" in found.summary
    assert sorted(c.layers for c in found.choices) == list(combinations(range(4), 2))
    monkeypatch.setattr(layer_ranking, "MUCH_TEXT", len(corpus.train))
    assert sorted(c.layers for c in made.rank("auto:2").choices) == [(0, 1), (0, 2), (0, 3)]


def test_the_scores_are_those_of_the_students(corpus: Corpus, encoder_folder: Path, tmp_path: Path) -> None:
    made = Planted(tmp_path, corpus, encoder_folder, "layers:0,2", 48)
    [dev] = made.judged.every
    assert isinstance(dev, StsSet)
    for choice in made.rank("auto:2").choices:
        student = made.student(f"layers:{','.join(map(str, choice.layers))}")
        states = encode(student, list(corpus.sentences))
        found = regressed(states[corpus.train], made.targets[corpus.train], states)
        again = spearman(cosine(found[dev.left_P], found[dev.right_P]), dev.score_P)
        assert choice.regressed == pytest.approx(again, abs=0.05)


@pytest.mark.parametrize("kind", ["sts", "retrieval", "fidelity"])
def test_too_many_choices_are_searched_greedily_and_in_two_rounds(
    corpus: Corpus, encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    made = Planted(tmp_path, corpus, encoder_folder, "layers:0,1,3", 48, kind)
    monkeypatch.setattr(layer_ranking, "EXHAUSTIVE", 2)
    monkeypatch.setattr(layer_ranking, "FINALISTS", 1)
    found = made.rank("auto:3")
    assert found.search == "greedy" and found.tried == 2 and found.first_sentences > 0
    assert len(found.choices) == 1 and len(found.chosen) == 3
    assert "the first layer, then the best to add" in found.summary


def test_many_choices_are_read_twice(
    corpus: Corpus, encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Planted(tmp_path, corpus, encoder_folder, "layers:0,2", 48)
    monkeypatch.setattr(layer_ranking, "FINALISTS", 2)
    monkeypatch.setattr(layer_ranking, "FIRST_SENTENCES", 60)
    found = made.rank("auto:2")
    assert found.chosen == (0, 2) and len(found.choices) == 2 and found.tried == 3
    assert (
        found.first_sentences == 60
        and "all 3 choices with the first layer on 60 sentences, the best 2 again on" in found.summary
    )
    quick = made.rank("auto:2", quick=True)
    assert quick.chosen == (0, 2) and quick.sentences == 60 and "again" not in quick.summary


def test_of_level_starts_the_one_that_keeps_the_first_layer_is_taken(
    corpus: Corpus, encoder_folder: Path, tmp_path: Path
) -> None:
    found = Planted(tmp_path, corpus, encoder_folder, "layers:1,2", 48, "retrieval", "teacher").rank("auto:2")
    for behind, taken in ((0.9, (0, 2)), (1.1, (1, 2))):
        starts = {(1, 2): 57.0, (1, 3): 56.9, (0, 2): 57.0 - behind}
        choices = [{"layers": layers, "regressed": start} for layers, start in starts.items()]
        assert layer_ranking.LayerRanking(**{**dict(found), "choices": choices}).chosen == taken


def test_a_quick_ranking_tells_how_few_sentences_there_were(
    corpus: Corpus, encoder_folder: Path, tmp_path: Path
) -> None:
    made = Planted(tmp_path, corpus, encoder_folder, "layers:1", 48, "fidelity")
    assert len(corpus.train) < layer_ranking.FIRST_SENTENCES
    assert made.rank("auto:1", quick=True).sentences == len(corpus.train)


def test_layers_of_a_narrower_encoder_for_a_wider_teacher(corpus: Corpus, encoder_folder: Path, tmp_path: Path) -> None:
    other = make_encoder(tmp_path / "other", width=16, layers=3, seed=7)
    made = Planted(tmp_path, corpus, other, "layers:0,2", 40)
    made.teacher = EncoderSpec(str(encoder_folder))  # the other one's states made the targets: 40 numbers of 16
    found = made.rank(f"auto:2@{other}")
    assert (found.chosen, found.count, found.encoder, found.student) == ((0, 2), 3, "other", "auto:2@other")


def test_it_is_made_once_and_again_for_anything_else(
    corpus: Corpus, encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Planted(tmp_path, corpus, encoder_folder, "layers:0,2", 48)
    first = made.artifact("auto:2")
    monkeypatch.setattr(layer_ranking, "search_layers", lambda *_: pytest.fail("it was made before"))
    assert made.artifact("auto:2") == made.artifact("auto") == first  # half of four is two
    monkeypatch.undo()
    others = {made.artifact("auto:1"), made.artifact("auto:2", "cls")}
    [dev] = made.judged.every
    assert isinstance(dev, StsSet)
    made.judged = replace(made.judged, sets={"sts": (replace(dev, score_P=dev.score_P[::-1].copy()),)})
    others.add(made.artifact("auto:2"))
    made.corpus = replace(corpus, train=corpus.train[:-3])
    others.add(made.artifact("auto:2"))
    assert len(others | {first}) == 5


def test_long_sentences_are_fewer(corpus: Corpus, encoder_folder: Path, tmp_path: Path, monkeypatch) -> None:
    made = Planted(tmp_path, corpus, encoder_folder, "layers:0,2", 48)
    monkeypatch.setattr(layer_ranking, "TOKENS", 300)
    monkeypatch.setattr(skipped_layers, "ENOUGH_SENTENCES", 10)
    found = made.rank("auto:2")
    assert 10 <= found.sentences < 80 < len(corpus.train)


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"student": "auto"}'])
def test_a_ranking_that_cannot_be_read_is_none(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / FILE).write_bytes(content)
    assert read_ranking(tmp_path) is None


def named(given: dict[str, Any]) -> dict[str, Any]:
    """Settings whose teacher is written as an option is."""
    return {name: value.name if isinstance(value, EncoderSpec) else value for name, value in given.items()}


def prepare(
    tmp_path: Path, corpus: Corpus, students: tuple[str | None, ...] = (None,), **given: object
) -> tuple[Path, str]:
    settings = RunSettings(**{"store": tmp_path / "store", **named(given)})
    said, wanted = io.StringIO(), Requirements(students=students)
    made = prepare_corpus(settings, corpus, wanted, Console(file=said, width=120))
    made.save(tmp_path / "prepared")
    return tmp_path / "prepared", said.getvalue()


@pytest.mark.parametrize("kind", ["bert", "deberta", "qwen3"])
def test_a_run_is_prepared_with_the_layers_written_out(
    corpus: Corpus, encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(stage, "CorpusEncoding", partial(stage.CorpusEncoding, in_process=True))
    teacher = EncoderSpec(str(make_architecture(kind, encoder_folder, tmp_path / kind)))
    folder, said = prepare(tmp_path, corpus, teacher=teacher, student="auto:2")
    ready, (ranking,) = load_prepared(folder), read_rankings(folder)
    assert ready.student == f"layers:{','.join(map(str, ranking.chosen))}"
    assert ready.pooling == ("lasttoken" if kind == "qwen3" else "mean")
    assert "Student auto:2: 2 of the 4 layers" in said and "; taken: " in said
    student = load_student(ready.student, ready.teacher, "cpu", ready.pooling)
    assert student[1].pooling_mode == ready.pooling and student[0].model.config.num_hidden_layers == 2
    folder, said = prepare(tmp_path, corpus, teacher=teacher, student="half")  # a ranking of before does not stay
    assert load_prepared(folder).student == "layers:0,3" and read_rankings(folder) == () and "Student" not in said


def test_a_run_is_bound_to_its_student(corpus: Corpus, encoder_folder: Path, tmp_path: Path) -> None:
    teacher, other = EncoderSpec(str(encoder_folder)), make_encoder(tmp_path / "other", width=16, layers=3, seed=7)

    def config(**given: object) -> dict[str, object]:
        settings = RunSettings(**named({"store": tmp_path, "teacher": teacher, **given}))
        return {k: v for k, v in run_config(settings, corpus).items() if k == "student"}

    assert config() == {"student": "auto"}
    assert config(student="auto:2") == {"student": "auto:2"}
    before = config(student=f"auto:2@{other}")
    assert str(before["student"]).startswith("auto:2@") and str(other) not in str(before["student"])
    assert config(student=f"layers:0,2@{other}") != before != config(student=f"auto:2@{encoder_folder}")
    [weights] = other.glob("**/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert config(student=f"auto:2@{other}") != before
