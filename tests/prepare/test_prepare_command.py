"""`python -m platform.prepare` as a user runs it: killed at any moment, run twice at once, and what it says."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from driver import door_environment, kill_driver
from typer.testing import CliRunner

from distilbench.cli import app
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import encode
from distilbench.prepare.tokens import load_tokens
from distilbench.storage.arrays import ShardedArray

ROOT = Path(__file__).resolve().parents[2]
WORDS = "the a one two man woman dog cat child runs walks eats sees plays in on under park house river".split()
SENTENCES = 4096
"""8 shards."""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "sentences.txt"
    rng = random.Random(9)
    made = [f"{' '.join(rng.choices(WORDS, k=8))} {number}" for number in range(SENTENCES)]
    path.write_text("\n".join([*made, *made[:50]]) + "\n")
    return path


class Prepare:
    """The command with its own store."""

    def __init__(self, folder: Path, text: Path, data: Path, encoder: Path, *more: str) -> None:
        self.folder, self.store, self.json = folder, folder / "store", folder / "made.json"
        self.command = [sys.executable, "-m", "platform.prepare", "--data", str(data), "--text", str(text)]
        self.command += ["--max-sentences", "0", "--teacher", str(encoder), "--student", "layers:0", "--cpus", "2"]
        self.command += ["--no-dashboard", "--store", str(self.store), "--json", str(self.json), *more]
        self.log = folder / "log.txt"

    def start(self) -> subprocess.Popen[str]:
        log = self.log.open("a")
        return subprocess.Popen(
            self.command, cwd=ROOT, env=door_environment(), stdout=log, stderr=subprocess.STDOUT, text=True
        )

    def shards(self) -> list[Path]:
        return sorted(self.store.glob("embeddings-*/shard-*.npy"))

    def made(self) -> dict[str, object]:
        return dict(json.loads(self.json.read_text()))


def wait_for_shards(prepare: Prepare, count: int, process: subprocess.Popen[str]) -> None:
    while len(prepare.shards()) < count and process.poll() is None:
        time.sleep(0.02)
    assert process.poll() is None and len(prepare.shards()) >= count, prepare.log.read_text()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_preparation_goes_on_and_says_what_it_made(
    tmp_path: Path, text: Path, data_folder: Path, encoder_folder: Path, request: pytest.FixtureRequest
) -> None:
    prepare = Prepare(tmp_path, text, data_folder, encoder_folder, "--augment", "synonym")
    process = prepare.start()
    wait_for_shards(prepare, 4, process)
    kill_driver(process)
    kept = {path.name: path.stat().st_mtime_ns for path in prepare.shards()}
    assert 4 <= len(kept) < 17 and not prepare.json.exists()

    process = prepare.start()  # and now a worker dies, which Ray replaces
    wait_for_shards(prepare, len(kept) + 2, process)
    workers = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if any("TeacherEncoding" in part for part in child.cmdline())
    ]
    if workers:  # a fast machine may be through
        os.kill(workers[0].pid, signal.SIGKILL)
    assert process.wait(timeout=300) == 0, prepare.log.read_text()
    said = " ".join(prepare.log.read_text().split())
    assert "sentences were encoded before the interruption" in said
    assert "training on 4,096 distinct of 4,146 sentences of --text; 0 left out" in said
    assert {p.name: p.stat().st_mtime_ns for p in prepare.shards() if p.name in kept} == kept

    made = prepare.made()
    found = made["artifacts"]
    assert isinstance(found, dict) and {"embeddings", "PCA", "tokens"} <= set(found)
    vectors = ShardedArray(Path(found["embeddings"]["path"]), int(str(made["sentences"])), 32, 512)
    assert made["training_sentences"] == SENTENCES + 64 * 2 + 80  # of the text, the pairs, and unlabeled/
    assert 0 < int(str(made["augmented_sentences"])) <= SENTENCES + 208
    sentences = text.read_text().split("\n")
    base = int(str(made["sentences"])) - int(str(made["augmented_sentences"])) - SENTENCES
    rows = np.array([base, base + 700, base + SENTENCES - 1])
    direct = encode(EncoderSpec(str(encoder_folder)).load(), [sentences[i - base] for i in rows])
    np.testing.assert_allclose(vectors.take(rows), direct, atol=1e-3)
    tokens = load_tokens(Path(found["tokens"]["path"]))
    assert len(tokens.offsets) == int(str(made["sentences"])) + 1

    request.getfixturevalue("cluster")  # only now: the commands before have a cluster each
    again = CliRunner().invoke(app, ["prepare", *prepare.command[3:]], catch_exceptions=False)
    assert f"0 of {made['sentences']} sentences encoded now" in " ".join(again.output.split())
    assert again.exit_code == 0 and prepare.made() == made


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_of_two_preparations_at_once_one_works(tmp_path: Path, data_folder: Path, encoder_folder: Path) -> None:
    (tmp_path / "text.txt").write_text("\n".join(f"the dog sees {number} cats" for number in range(1000)))
    prepare = Prepare(tmp_path, tmp_path / "text.txt", data_folder, encoder_folder)
    both = [prepare.start() for _ in range(2)]
    assert [process.wait(timeout=400) for process in both] == [0, 0], prepare.log.read_text()
    said = " ".join(prepare.log.read_text().split())
    assert said.count(" sentences encoded now") == 2 and said.count(": 0 of ") == 1
    assert not list(prepare.store.glob("*.partial")) and not list(prepare.store.rglob("*.tmp"))
