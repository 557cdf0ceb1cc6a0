"""The evaluator against reference values measured elsewhere, on real STS files where they are there."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from distilbench.records import Score

DATA = Path(os.environ.get("DISTILBENCH_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
MODELS = Path(os.environ.get("DISTILBENCH_MODELS", Path(__file__).resolve().parents[2] / "models"))

REFERENCE = {  # raw text, cosine, Spearman x 100, all subsets concatenated: STS12, 13, 14, STS-B test, STS-B dev
    "all-MiniLM-L6-v2": (72.37, 80.60, 75.60, 82.03, 86.72),
    "all-mpnet-base-v2": (72.63, 83.49, 78.01, 83.42, 88.11),
}
SETS = (("STS12", "test"), ("STS13", "test"), ("STS14", "test"), ("STSB", "test"), ("STSB", "dev"))


def spearmans(scores: list[Score]) -> dict[tuple[str, str], float]:
    """Of all subsets concatenated, by set and split."""
    return {(s.set, s.split): s.value for s in scores if (s.metric, s.variant) == ("spearman", "all")}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not (DATA / "sts").is_dir(), reason="no real data: set DISTILBENCH_DATA to a folder with sts/*.tsv")
@pytest.mark.parametrize("name", REFERENCE)
def test_sts_scores_equal_the_reference_to_two_decimals(name: str, tmp_path: Path) -> None:
    from samples import sts_scores

    from distilbench.data.folder import Limits, folder_corpus
    from distilbench.encoders.encoder import EncoderSpec
    from distilbench.encoders.encoding import encode
    from distilbench.evaluation.sts import from_rows

    folder = MODELS / name
    if name == "all-mpnet-base-v2" and not folder.is_dir():
        pytest.skip("no all-mpnet-base-v2: set DISTILBENCH_MODELS to a folder that holds it")
    if name == "all-mpnet-base-v2" and not os.environ.get("DISTILBENCH_SLOW"):
        pytest.skip("takes 10 minutes on two cores: set DISTILBENCH_SLOW=1")
    (tmp_path / "unlabeled").mkdir()
    (tmp_path / "unlabeled" / "one.tsv").write_text("text\nA sentence to train on.\n")
    (tmp_path / "sts").symlink_to(DATA / "sts")
    corpus = folder_corpus(tmp_path, Limits())
    sets = [s for s in corpus.sts if (s.group, s.split) in SETS]
    rows = np.unique(np.concatenate([side for s in sets for side in (s.left_P, s.right_P)]))
    model = EncoderSpec(str(folder) if folder.is_dir() else name).load()
    vectors = encode(model, [corpus.sentences[i] for i in rows])
    found = spearmans(sts_scores(from_rows(rows, vectors), sets))
    assert [round(found[key], 2) for key in SETS] == list(REFERENCE[name])
    stored = vectors.astype(np.float16).astype(np.float32)
    found = spearmans(sts_scores(from_rows(rows, stored), sets))
    assert [found[key] for key in SETS] == pytest.approx(REFERENCE[name], abs=0.015)
