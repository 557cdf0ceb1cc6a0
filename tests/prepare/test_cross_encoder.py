"""The cross-encoder: how its outputs are read, fine-tuning that survives a kill, logits made once, bad folders."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from distilbench.data.corpus import PairSplit, PairTask
from distilbench.encoders.encoder import EncoderSpec
from distilbench.errors import InputError
from distilbench.prepare import cross_encoder as module
from distilbench.prepare.cross_encoder import (
    CrossEncoderParams,
    FineTuning,
    cross_encoder_scores,
    load_cross_encoder,
    logits_artifact,
    start_cross_encoder,
)
from distilbench.prepare.prepared import LOGITS
from distilbench.storage.store import ArtifactStore

WORDS = "the a dog cat man woman child runs walks eats sees plays in on under park house river red blue small".split()
_rng = random.Random(5)
SENTENCES = tuple(" ".join(_rng.choices(WORDS, k=3 + i % 9)) for i in range(40))
FAST = CrossEncoderParams(lr=0.003, batch_size=8, epochs=3, max_tokens=32)
CLASSES = {"regression": (), "binary": ("different", "equivalent"), "three-class": ("entailment", "neutral", "other")}


def make_task(kind: str = "binary") -> PairTask:
    """Whether the second sentence is the first: what a cross-encoder can learn and no chance gives."""
    rng = np.random.default_rng(0)

    def split(count: int) -> PairSplit:
        left, same = rng.integers(0, 40, count), rng.random(count) < 0.5
        right = np.where(same, left, (left + rng.integers(1, 40, count)) % 40)
        target = {"regression": 1 + 4 * same, "binary": same, "three-class": np.where(same, 0, 1 + left % 2)}[kind]
        return PairSplit(left, right, target.astype(np.float64))

    low, high = (1.0, 5.0) if kind == "regression" else (0.0, 1.0)
    splits = {"train": split(48), "dev": split(20), "test": split(12)}
    return PairTask("SAME", kind, CLASSES[kind], low, high, splits)  # type: ignore[arg-type]


def make_cross_encoder(encoder: Path, folder: Path, kind: str, **config: Any) -> Path:
    """A folder as a user has it: a freshly drawn output layer, and changes to `config.json`."""
    torch.manual_seed(1)
    started = start_cross_encoder(EncoderSpec(str(encoder)), make_task(kind), 32, "cpu")
    with torch.no_grad():
        started.model.classifier.weight.mul_(30)  # so that the order of outputs is seen
    started.save_pretrained(str(folder), create_model_card=False)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    return folder


Run = Callable[..., None]


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch, run_in_process: Run) -> None:
    monkeypatch.setattr(module, "SHARD_PAIRS", 20)
    monkeypatch.setattr(module, "run_pool", run_in_process)


def raw_logits(folder: Path, left: str, right: str) -> np.ndarray:
    """Of one pair, by transformers alone."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(str(folder)).eval()
    with torch.no_grad():
        found = model(**AutoTokenizer.from_pretrained(str(folder))(left, right, return_tensors="pt"))
    return found.logits[0].numpy()


def test_logits_are_transformers_own_whatever_the_batch(encoder_folder: Path, tmp_path: Path) -> None:
    folder = make_cross_encoder(encoder_folder, tmp_path / "ce", "three-class")
    encoder = load_cross_encoder(folder, make_task("three-class"))
    logits = encoder.logits(SENTENCES[:12], SENTENCES[12:24])
    assert logits.shape == (12, 3) and logits.dtype == np.float32
    for i in (0, 5, 11):
        assert logits[i] == pytest.approx(raw_logits(folder, SENTENCES[i], SENTENCES[12 + i]), abs=1e-4)
    # The two sentences are told apart, and their order counts.
    assert np.abs(encoder.logits(SENTENCES[12:24], SENTENCES[:12]) - logits).max() > 1e-3


@pytest.mark.parametrize(
    ("kind", "names", "order"),
    [
        ("three-class", ["OTHER", "Neutral", "entailment"], [2, 1, 0]),  # MNLI models differ in their order
        ("three-class", ["LABEL_0", "LABEL_1", "LABEL_2"], [0, 1, 2]),  # nameless: taken as the task's
        ("binary", ["equivalent", "not_equivalent"], [1, 0]),  # class 1 is found by its name
    ],
)
def test_outputs_are_brought_to_the_order_of_the_tasks_classes(
    encoder_folder: Path, tmp_path: Path, kind: str, names: list[str], order: list[int]
) -> None:
    folder = make_cross_encoder(encoder_folder, tmp_path / "ce", kind, id2label=dict(enumerate(names)))
    raw = raw_logits(folder, SENTENCES[0], SENTENCES[1])[order]
    wanted = [raw[1] - raw[0]] if kind == "binary" else raw
    (logits,) = load_cross_encoder(folder, make_task(kind)).logits([SENTENCES[0]], [SENTENCES[1]])
    assert logits == pytest.approx(wanted, abs=1e-4)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, encoder_folder: Path) -> Path:
    """A store with a cross-encoder fine-tuned on the binary task; copy it before changing it."""
    root = tmp_path_factory.mktemp("tuned") / "store"
    artifact(root, encoder_folder)
    return root


def artifact(root: Path, encoder: Path, **changes: Any) -> Path:
    task = changes.pop("task", None) or make_task()
    texts = {split: module.pair_texts(task, split, SENTENCES) for split in ("train", "dev")}
    arguments = {"task": task, "start": EncoderSpec(str(encoder)), "params": FAST, "seed": 0, **changes}
    return FineTuning(**arguments, texts=texts).artifact(ArtifactStore(root))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def test_a_fine_tuned_cross_encoder_is_a_hugging_face_folder_and_is_found_again(
    tuned: Path, encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FineTuning, "run", lambda *_: pytest.fail("fine-tuned again"))
    folder = artifact(tuned, encoder_folder)
    assert {*module.FILES, "tokenizer.json", "manifest.json"} <= {p.name for p in folder.iterdir() if p.is_file()}
    assert not [p.name for p in folder.iterdir() if p.is_dir()]
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["id2label"] == {"0": "different", "1": "equivalent"}
    assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == FAST.max_tokens
    load_cross_encoder(folder, make_task())


@pytest.mark.parametrize("kind", ["regression", "three-class"])
def test_what_is_kept_is_the_best_epoch_on_dev(
    encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    measured, metrics = list[float](), module.pair_metrics
    monkeypatch.setattr(
        module, "pair_metrics", lambda *given: measured.append(next(iter((told := metrics(*given)).values()))) or told
    )
    folder, task = artifact(tmp_path, encoder_folder, task=make_task(kind)), make_task(kind)
    dev = load_cross_encoder(folder, task).logits(*module.pair_texts(task, "dev", SENTENCES))
    first = next(iter(metrics(kind, dev, task.splits["dev"].target_P).values()))
    assert len(measured) == 3 and first == pytest.approx(max(measured))


def test_a_killed_fine_tuning_goes_on_and_ends_the_same(
    tuned: Path, encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentence_transformers.cross_encoder import CrossEncoderTrainer

    save, step = CrossEncoderTrainer._save_checkpoint, CrossEncoderTrainer.training_step

    def save_and_die(trainer: Any, *given: Any) -> None:
        save(trainer, *given)
        if trainer.state.global_step == 12:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(CrossEncoderTrainer, "_save_checkpoint", save_and_die)
        artifact(tmp_path / "store", encoder_folder)
    trained = list[int]()
    monkeypatch.setattr(
        CrossEncoderTrainer, "training_step", lambda *given, **more: trained.append(0) or step(*given, **more)
    )
    folder = artifact(tmp_path / "store", encoder_folder)
    assert len(trained) == 6
    for name, tensor in weights(artifact(tuned, encoder_folder)).items():
        assert torch.equal(weights(folder)[name], tensor), name


@pytest.mark.parametrize("change", ["seed", "params", "labels", "start"])
def test_another_cross_encoder_is_never_taken_for_it(
    tuned: Path, encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(FineTuning, "run", lambda *_: 1 / 0)
    task = make_task()
    dev = task.splits["dev"]
    changed: dict[str, Any] = {
        "seed": {"seed": 1},
        "params": {"params": replace(FAST, lr=0.002)},
        "labels": {"task": replace(task, splits={**task.splits, "dev": replace(dev, target_P=1 - dev.target_P)})},
        "start": {"start": EncoderSpec(str(shutil.copytree(encoder_folder, tmp_path / "copy")))},
    }[change]
    if change == "start":
        artifact(tuned, encoder_folder, **changed)  # the same files elsewhere are the same encoder
        path = tmp_path / "copy" / "config.json"
        path.write_text(path.read_text().replace('"hidden_dropout_prob": 0.1', '"hidden_dropout_prob": 0.2'))
    with pytest.raises(ZeroDivisionError):
        artifact(tuned, encoder_folder, **changed)


@pytest.fixture
def store(tmp_path: Path, tuned: Path) -> ArtifactStore:
    return ArtifactStore(Path(shutil.copytree(tuned, tmp_path / "tuned")))


def test_logits_are_those_of_the_training_pairs_and_are_made_once(
    store: ArtifactStore, encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, task = artifact(store.root, encoder_folder), make_task()
    path = logits_artifact(task, SENTENCES, folder, store)
    logits = np.load(path / LOGITS)
    direct = load_cross_encoder(folder, task).logits(*module.pair_texts(task, "train", SENTENCES))
    assert logits.dtype == np.float32 and logits == pytest.approx(direct, abs=1e-5)
    assert [p.name for p in path.iterdir() if p.name != "manifest.json"] == [LOGITS]
    monkeypatch.setattr(module, "run_pool", lambda *_, **__: pytest.fail("computed again"))
    assert logits_artifact(task, SENTENCES, folder, store) == path


def test_the_teachers_own_scores(store: ArtifactStore, encoder_folder: Path) -> None:
    folder = artifact(store.root, encoder_folder)
    scores = cross_encoder_scores(make_task(), SENTENCES, folder, store)
    assert [(s.split, s.metric, s.n) for s in scores] == [
        ("dev", "accuracy", 20),
        ("dev", "f1", 20),
        ("test", "accuracy", 12),
        ("test", "f1", 12),
    ]


def test_outputs_on_another_scale_are_brought_to_that_of_the_labels(
    store: ArtifactStore, encoder_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = make_task("regression")
    folder = make_cross_encoder(encoder_folder, tmp_path / "ce", "regression")
    logits = np.load(logits_artifact(task, SENTENCES, folder, store) / LOGITS)[:, 0]
    raw = load_cross_encoder(folder, task).logits(*module.pair_texts(task, "train", SENTENCES))[:, 0]
    gold = (task.splits["train"].target_P - 1) / 4
    assert np.mean((raw - gold) ** 2) > np.var(gold)  # or nothing would be mapped
    design = np.stack([np.ones(48), raw], axis=1)
    assert logits == pytest.approx(design @ np.linalg.lstsq(design, gold, rcond=None)[0], abs=1e-4)
    assert "not on the scale 0 to 1" in " ".join(capsys.readouterr().out.split())
    near = (gold[:, None] + 0.1).astype(np.float32)  # on the scale already
    assert module._on_unit_scale(near, gold.astype(np.float32), "") is near


def _no_classifier(folder: Path) -> None:
    from safetensors.torch import save_file

    kept = {name: tensor for name, tensor in weights(folder).items() if not name.startswith("classifier")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


BAD: list[tuple[str, str, dict[str, Any], Callable[[Path], None] | None, str]] = [
    ("three-class", "binary", {}, None, "3 outputs, .* expected 1 or 2 for SAME"),
    ("regression", "binary", {}, None, "problem_type is 'regression'; expected 1 or 2"),
    ("binary", "binary", {"id2label": {"0": "bad", "1": "good"}}, None, "bad, good .*different, equivalent"),
    ("binary", "binary", {"architectures": ["BertModel"]}, None, "BertModel"),
    ("binary", "binary", {}, _no_classifier, "no weights of classifier.bias, classifier.weight"),
    ("binary", "binary", {}, lambda folder: (folder / "tokenizer.json").write_text("{"), "its tokenizer cannot be"),
]


@pytest.mark.parametrize(("made_for", "task", "config", "change", "message"), BAD)
def test_a_folder_that_is_no_cross_encoder_for_the_task_is_bad_input(
    encoder_folder: Path,
    tmp_path: Path,
    made_for: str,
    task: str,
    config: dict[str, Any],
    change: Callable[[Path], None] | None,
    message: str,
) -> None:
    folder = make_cross_encoder(encoder_folder, tmp_path / "mine", made_for, **config)
    if change:
        change(folder)
    with pytest.raises(InputError, match=rf"cross-encoder '.*mine': .*{message}"):
        load_cross_encoder(folder, make_task(task))


def test_a_folder_that_is_not_there_and_a_corpus_too_small(tmp_path: Path, encoder_folder: Path) -> None:
    with pytest.raises(InputError, match=r"cross-encoder '.*nowhere': no such folder"):
        load_cross_encoder(tmp_path / "nowhere", make_task())
    with pytest.raises(InputError, match=r"batch_size is 64, but the corpus has only 48 training pairs"):
        artifact(tmp_path, encoder_folder, params=replace(FAST, batch_size=64))


def test_a_fine_tuning_that_diverges_says_so(tmp_path: Path, encoder_folder: Path) -> None:
    with pytest.raises(InputError, match=r"tiny' on SAME: .*diverged"):
        artifact(tmp_path, encoder_folder, params=replace(FAST, lr=1e30, warmup=0, epochs=1))
