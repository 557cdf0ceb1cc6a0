"""`--text` and its options on the command line: what reaches the run, and what is refused before it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from distilbench.cli import app

SPACE: dict[str, Any] = {
    "method": "hpd",
    "budget": {"trials": 1, "steps": 5},
    "parameters": {"output_dim": {"choices": [4]}},
    "fixed": {"batch_size": 8, "lr": 0.001},
}
ROWS = {"rows": [{"name": "r", "method": "hpd", "params": {"output_dim": 4, "lr": 0.001, "batch_size": 8}}]}


class Reached(Exception):
    """Raised where Ray would be started."""


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def reached(*_: object) -> None:
        raise Reached

    monkeypatch.setattr("distilbench.commands.run_folder.ray_cluster", reached)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(SPACE))
    (tmp_path / "rows.yaml").write_text(yaml.safe_dump(ROWS))
    (tmp_path / "own.txt").write_text("".join(f"my own sentence {i}\n" for i in range(40)))
    (tmp_path / "own.jsonl").write_text(
        "".join(json.dumps({"s": f"another one {i}"}) + "\n" for i in range(10)) + "{\n"
    )


@pytest.fixture
def common(encoder_folder: Path, data_folder: Path) -> list[str]:
    return ["--teacher", str(encoder_folder), "--store", "store", "--name", "mine"]


def invoke(command: str, *options: str) -> Result:
    first = ["sweep", "--method", "hpd", "--space", "space.yaml"] if command == "sweep" else ["compare", "rows.yaml"]
    return CliRunner().invoke(app, [*first, *options])


def refused(result: Result, *wanted: str) -> None:
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stderr.startswith("error: ") and "Traceback" not in result.output
    for text in wanted:
        assert text in result.stderr, result.stderr
    assert not Path("runs").exists() and not list(Path("store").glob("embeddings-*"))


@pytest.mark.parametrize("command", ["sweep", "compare"])
def test_text_beside_a_data_folder(command: str, common: list[str], data_folder: Path) -> None:
    result = invoke(command, *common, "--data", str(data_folder), "--text", "own.txt", "--max-sentences", "0")
    assert "Reached: " in result.stderr, result.output
    assert "found      --text own.txt: 40 sentences (train)" in result.stdout
    assert "training on 40 distinct of 40 sentences of --text" in result.stdout


def test_other_text_is_another_run(common: list[str]) -> None:
    Path("own.txt").write_text("".join(f"my own sentence {i}\n" for i in range(400)))
    assert "Reached: " in invoke("sweep", *common, "--text", "own.txt").stderr
    assert "Reached: " in invoke("sweep", *common, "--text", "own.txt").stderr
    result = invoke("sweep", *common, "--text", "own.txt", "--max-sentences", "300")
    assert result.exit_code == 2 and "corpus_fingerprint" in result.stderr


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--text", "nowhere.csv"], ["nowhere.csv: no such file or folder"]),
        (["--text", "space.yaml"], ["space.yaml: the format is not known"]),
        (["--text", "own.jsonl", "--text-column", "s"], ["own.jsonl, row 11: malformed JSON"]),
        (["--text", "own.jsonl"], ["row 1: no column 'text'; the columns are ['s']"]),
        (["--text", "hf:me/mine"], ["hf:me/mine: no such folder, and not to be had from the hub"]),
        (["--text", "hf:me/mine?split"], ["hf:me/mine?split: expected hf:NAME"]),
    ],
)
def test_bad_text_is_refused_and_nothing_is_written(common: list[str], options: list[str], wanted: list[str]) -> None:
    refused(invoke("sweep", *common, *options), *wanted)


def test_augmentation_that_nothing_trains_on_is_said_to_be_left_aside(common: list[str]) -> None:
    result = invoke("sweep", *common, "--augment", "synonym")
    assert "Reached: " in result.stderr and "--augment is left aside" in result.stdout
    space = yaml.safe_load(Path("space.yaml").read_text())
    Path("space.yaml").write_text(yaml.safe_dump({**space, "fixed": {**space["fixed"], "augmentation": True}}))
    result = invoke("sweep", *common)
    assert result.exit_code == 2 and "nothing says how to augment; expected --augment OPERATIONS" in result.stderr
    result = invoke("sweep", *common, "--augment", "synonym", "--name", "other")
    assert "Reached: " in result.stderr and "left aside" not in result.stdout
    kept = json.loads(Path("runs/other/config.json").read_text())["augment"]
    assert [operation["name"] for operation in kept] == ["synonym"]
    result = invoke("sweep", *common, "--augment", "shuffle", "--name", "third")
    assert result.exit_code == 2 and "augmentation 'shuffle': expected one of" in result.stderr
    assert not Path("runs/third").exists()
