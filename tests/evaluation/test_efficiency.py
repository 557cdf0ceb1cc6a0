"""benchmarks/efficiency.py: what is counted, what is measured and what extrapolated, and that the two models really run."""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from distilbench.data.corpus import PairSplit, PairTask
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.pair_head import PairHead, PairScorer, save_pair_head
from distilbench.errors import InputError
from distilbench.prepare.cross_encoder import TaskCrossEncoder, start_cross_encoder

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import efficiency as module
from efficiency import Efficiency, Timing, efficiency_report

WORDS = "the a dog cat man woman child runs walks eats sees plays in on under park house river red blue small".split()
_rng = random.Random(9)
SENTENCES = tuple(" ".join(_rng.choices(WORDS, k=3 + i % 9)) for i in range(60))


def task() -> PairTask:
    split = PairSplit(np.arange(2), np.arange(2), np.array([0.0, 1.0]))
    return PairTask("T", "binary", ("no", "yes"), 0.0, 1.0, {"train": split, "dev": split})


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, encoder_folder: Path) -> tuple[Path, Path]:
    """A student and a cross-encoder."""
    root = tmp_path_factory.mktemp("efficiency")
    torch.manual_seed(0)
    model = EncoderSpec(str(encoder_folder)).load()
    model.save(str(root / "student"), create_model_card=False)
    save_pair_head(root / "student", PairHead("concat", 32, 8, 1), task())
    start_cross_encoder(EncoderSpec(str(encoder_folder)), task(), 32, "cpu").save_pretrained(str(root / "cross"))
    return root / "student", root / "cross"


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What the models were given."""
    calls: dict[str, list[Any]] = {"pairs": [], "embedded": [], "compared": []}
    logits, embed, against = TaskCrossEncoder.logits, PairScorer.embed, module.against

    def seen_logits(self: TaskCrossEncoder, left: Sequence[str], right: Sequence[str], **options: Any) -> Any:
        calls["pairs"].append(list(zip(left, right, strict=True)))
        return logits(self, left, right, **options)

    def seen_embed(self: PairScorer, texts: Sequence[str]) -> Any:
        calls["embedded"].append(list(texts))
        return embed(self, texts)

    def seen_against(head: PairHead, u_d: torch.Tensor, v_Nd: torch.Tensor) -> Any:
        calls["compared"].append(len(v_Nd))
        return against(head, u_d, v_Nd)

    monkeypatch.setattr(TaskCrossEncoder, "logits", seen_logits)
    monkeypatch.setattr(PairScorer, "embed", seen_embed)
    monkeypatch.setattr(module, "against", seen_against)
    return calls


def by_part(report: Efficiency) -> dict[tuple[str, str, str], Timing]:
    return {(t.setup, t.model, t.work): t for t in report.timings}


def test_small_enough_work_is_measured_whole(folders: tuple[Path, Path], seen: dict[str, list[Any]]) -> None:
    report = efficiency_report(*folders, SENTENCES, sentences=20, catalogue=50, seconds=60)
    parts = by_part(report)
    assert {key: (t.total, t.measured, t.counted) for key, t in parts.items()} == {
        ("all pairs", "cross-encoder", "read"): (400, 400, True),
        ("all pairs", "student", "embed"): (20, 20, True),
        ("all pairs", "student", "apply the head to"): (400, 400, True),
        ("catalogue", "cross-encoder", "read"): (50, 50, True),
        ("catalogue", "student", "embed"): (1, 1, True),
        ("catalogue", "student", "apply the head to"): (50, 50, True),
        ("catalogue", "student", "embed beforehand"): (50, 20, False),
    }
    # Each ordered pair of the same 20 sentences was read once, after the warm-up.
    pairs = list(itertools.chain(*seen["pairs"][1:]))
    texts = {text for pair in pairs for text in pair}
    assert len(pairs) == len(set(pairs)) == 400 and len(texts) == 20 and texts <= set(SENTENCES)
    assert set(seen["embedded"][1]) == texts
    assert seen["compared"].count(20) == 20 and seen["compared"].count(50) == 20
    assert all(t.measured_s > 0 for t in report.timings)
    assert (report.student, report.cross_encoder, report.device) == ("student", "cross", "cpu")


def made_up() -> Efficiency:
    timings = (
        Timing("all pairs", "cross-encoder", "read", "pairs", 1_000_000, 1000, 10.0),
        Timing("all pairs", "student", "embed", "sentences", 1000, 1000, 4.0),
        Timing("all pairs", "student", "apply the head to", "pairs", 1_000_000, 1_000_000, 16.0),
        Timing("catalogue", "cross-encoder", "read", "pairs", 100_000, 1000, 10.0),
        Timing("catalogue", "student", "embed", "query", 1, 1, 0.1, note="median of 20 queries"),
        Timing("catalogue", "student", "apply the head to", "pairs", 100_000, 100_000, 1.9),
        Timing("catalogue", "student", "embed beforehand", "sentences", 100_000, 1000, 4.0, counted=False),
    )
    return Efficiency("s", "c", "cpu", 2, 1000, 100_000, timings)


def test_speed_ups_by_hand() -> None:
    report = made_up()
    assert report.speedup("all pairs") == pytest.approx(10_000 / 20)
    assert report.speedup("catalogue") == pytest.approx(1000 / 2)  # what is done beforehand is not counted
    kept = json.loads(json.dumps(report.to_json()))
    assert kept["speedups"]["catalogue"] == {"speedup": pytest.approx(500), "published": 13594.0}
    told, measured = [t["how"] for t in kept["timings"]], ["measured"] * 2
    assert told == ["extrapolated", *measured, "extrapolated", *measured, "extrapolated"]
    assert kept["timings"][0]["total_s"] == pytest.approx(10_000)


def test_bad_input(folders: tuple[Path, Path], encoder_folder: Path) -> None:
    student, cross = folders
    with pytest.raises(InputError, match=r"--sentences 61: the corpus has 60 distinct sentences"):
        efficiency_report(student, cross, [*SENTENCES, *SENTENCES], sentences=61)
    with pytest.raises(InputError, match=r"student '.*cross': no pair_head.json"):
        efficiency_report(cross, cross, SENTENCES, sentences=5)
    with pytest.raises(InputError, match=r"cross-encoder '.*tiny': its architectures"):
        efficiency_report(student, encoder_folder, SENTENCES, sentences=5)
