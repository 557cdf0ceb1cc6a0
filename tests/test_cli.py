"""Bad input on the command line: status 2, one message that names file, row and value, and nothing written."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner, Result

from distilbench.cli import app
from distilbench.cli.options import exit_status

SPACE: dict[str, Any] = {
    "method": "mcr2",
    "budget": {"trials": 2, "steps": 10},
    "parameters": {"output_dim": {"choices": [4, 8]}, "lr": {"low": 0.001, "high": 0.01}},
    "fixed": {"batch_size": 16, "clusters": 4, "lambda": 1},
}


MCR2: dict[str, Any] = {"output_dim": 8, "lambda": 1, "clusters": 4, "lr": 0.001, "batch_size": 16}
LABELLED: dict[str, Any] = {"output_dim": 8, "lr": 0.001, "batch_size": 16}


def row(name: str, method: str = "mcr2", **params: Any) -> dict[str, Any]:
    """A row of a comparison."""
    return {"name": name, "method": method, "params": {**(MCR2 if method == "mcr2" else LABELLED), **params}}


class Workplace:
    """A folder with a data folder, a teacher and a search space that a test may spoil, and the command on them."""

    def __init__(self, root: Path, data: Path, teacher: Path) -> None:
        self.root = root
        self.data = Path(shutil.copytree(data, root / "data"))
        self.teacher = Path(shutil.copytree(teacher, root / "teacher"))
        self.space, self.rows = root / "space.yaml", root / "rows.yaml"
        self.runs, self.reports, self.store = root / "runs", root / "reports", root / "store"
        self.write_space()
        self.write_rows(row("good"))

    def write_space(self, **sections: dict[str, Any]) -> None:
        raw = json.loads(json.dumps(SPACE))
        for section, changes in sections.items():
            raw[section].update(changes)
        self.space.write_text(yaml.safe_dump(raw))

    def append(self, file: str, row: str) -> None:
        with (self.data / file).open("a") as stream:
            stream.write(row + "\n")

    def sweep(self, *more: str, method: str = "mcr2") -> Result:
        folders = {"data": self.data, "teacher": self.teacher, "space": self.space}
        folders |= {"runs": self.runs, "store": self.store}
        options = [text for name, folder in folders.items() for text in (f"--{name}", str(folder))]
        # The last of two equal options counts, so a test may replace any of these.
        return CliRunner().invoke(app, ["sweep", "--method", method, *options, "--name", "mine", *more])

    def compare(self, *more: str) -> Result:
        folders = {"data": self.data, "teacher": self.teacher, "runs": self.runs}
        options = [
            text for name, folder in (folders | {"store": self.store}).items() for text in (f"--{name}", str(folder))
        ]
        return CliRunner().invoke(app, ["compare", str(self.rows), *options, "--name", "mine", *more])

    def write_rows(self, *rows: dict[str, Any]) -> None:
        self.rows.write_text(yaml.safe_dump({"rows": list(rows)}))

    def files(self) -> list[Path]:
        """Everything below the folders that a sweep writes to; the lock file of a run is no result."""
        written = [p for top in (self.runs, self.reports, self.store) for p in [top, *top.rglob("*")] if p.exists()]
        return [p for p in written if p.suffix != ".lock" and p != self.runs]


@pytest.fixture
def place(tmp_path: Path, data_folder: Path, encoder_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    def no_ray(*_: object, **__: object) -> None:
        pytest.fail("Ray was started before the input was checked")

    monkeypatch.setattr("ray.init", no_ray)
    monkeypatch.setattr("distilbench.commands.run_folder.ray_cluster", no_ray)
    monkeypatch.chdir(tmp_path)
    return Workplace(tmp_path, data_folder, encoder_folder)


class Reached(Exception):
    """Raised where Ray would be started."""


def reached(*_: object) -> None:
    raise Reached


def refused(result: Result, *wanted: str) -> None:
    """Status 2, and on stderr one message with every one of `wanted`, without a traceback."""
    assert result.exit_code == 2, (result.output, result.exception)
    message = result.stderr
    assert message.startswith("error: ") and message.count("error: ") == 1
    assert "Traceback" not in result.output
    for text in wanted:
        assert text in message, message


def remove_sets(place: Workplace) -> None:
    shutil.rmtree(place.data)
    place.data.mkdir()


def few_pairs(place: Workplace) -> None:
    path = place.data / "quora" / "pairs.tsv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:21]))


def few_sentences(place: Workplace) -> None:
    few_pairs(place)
    path = place.data / "unlabeled" / "sentences.tsv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:6]))


Spoil = Callable[[Workplace], object]

BAD: list[tuple[str, Spoil, list[str], list[str]]] = [
    # What is spoiled, how, further options, what the message must hold.
    ("unknown method", lambda p: None, ["--method", "mcr3"], ["--method mcr3", "expected one of ", "hpd", "mcr2"]),
    ("no space", lambda p: p.space.unlink(), [], ["space.yaml: cannot be read: No such file"]),
    (
        "dimension above the teacher's",
        lambda p: p.write_space(parameters={"output_dim": {"choices": [8, 33]}}),
        [],
        ["space.yaml: output_dim: 33 is above the 32 dimensions of teacher or student"],
    ),
    ("no data folder", lambda p: shutil.rmtree(p.data), [], ["data: no such folder"]),
    ("no usable set", remove_sets, [], ["data: no usable set in it", "sts/STSB.dev.tsv"]),
    (
        "empty sentence",
        lambda p: p.append("quora/pairs.tsv", "a dog\t \t1\ttrain"),
        [],
        ["pairs.tsv, row 66: column 'question2' is empty; expected a sentence"],
    ),
    ("no teacher", lambda p: shutil.rmtree(p.teacher), [], ["teacher': no such folder"]),
    (
        "fewer pairs than a batch",
        lambda p: p.write_space(fixed={"batch_size": 65}),
        [],
        ["space.yaml", "batch_size is 65, but the corpus has only 64 similar pairs"],
    ),
    # The largest value that a search could draw decides, not the first.
    (
        "fewer pairs than the largest batch",
        lambda p: (few_pairs(p), p.write_space(parameters={"clusters": {"low": 2, "high": 21}}), drop(p, "clusters")),
        [],
        ["space.yaml", "clusters is 21, but the corpus has only 20 similar pairs"],
    ),
    (
        "fewer sentences than a batch",
        lambda p: (few_sentences(p), p.write_space(fixed={"batch_size": 46, "pairs": "noise"})),
        [],
        ["space.yaml", "batch_size is 46, but the corpus has only 45 training sentences"],
    ),
    (
        "sentences longer than the teacher reads",
        lambda p: None,
        ["--max-tokens", "65"],
        ["65 tokens", "--max-tokens 64"],
    ),
    (
        "another quantisation",
        lambda p: None,
        ["--quantise", "int5"],
        ["--quantise int5: expected int8, int4, int3, int2, binary, or one of FAISS's"],
    ),
    ("an empty space", lambda p: p.space.write_text(""), [], ["space.yaml: the file: expected keys with values"]),
    ("name with a slash", lambda p: None, ["--name", "a/b"], ["--name 'a/b': expected a plain folder name"]),
]


def drop(place: Workplace, fixed: str) -> None:
    raw = yaml.safe_load(place.space.read_text())
    del raw["fixed"][fixed]
    place.space.write_text(yaml.safe_dump(raw))


@pytest.mark.parametrize(("spoil", "options", "wanted"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_input_is_refused_and_nothing_is_written(
    place: Workplace, spoil: Spoil, options: list[str], wanted: list[str]
) -> None:
    spoil(place)
    refused(place.sweep(*options), *wanted)
    assert place.files() == []
    assert not place.runs.exists() or not any(p.is_dir() for p in place.runs.iterdir())


BAD_ROWS: list[tuple[str, Spoil, list[str], list[str]]] = [
    # Of a comparison; every kind of bad row is in test_configurations.py.
    ("no file", lambda p: p.rows.unlink(), [], ["rows.yaml: cannot be read: No such file"]),
    ("unknown row", lambda p: None, ["--row", "better"], ["--row better: no such row; expected one of 'good'"]),
    (
        "dimension above the teacher's",
        lambda p: p.write_rows(row("bad", output_dim=33)),
        [],
        ["rows.yaml: row 'bad': output_dim: 33 is above the 32 dimensions of teacher or student"],
    ),
    (
        "fewer pairs than a batch",
        lambda p: p.write_rows(row("good"), row("bad", batch_size=65)),
        [],
        ["rows.yaml: row 'bad': batch_size is 65, but the corpus has only 64 similar pairs"],
    ),
    (
        "no triplets",
        lambda p: (shutil.rmtree(p.data / "nli"), p.write_rows(row("bad", "contrastive"))),
        [],
        ["data: the method learns from triplets; expected nli/triplets.tsv"],
    ),
    (
        "a width without a projection",
        lambda p: p.write_rows(row("bad", "mse", output_dim=16)),
        [],
        ["rows.yaml: row 'bad': output_dim: 16", "expected 32, the student's width (`native`)"],
    ),
]


@pytest.mark.parametrize(("spoil", "options", "wanted"), [b[1:] for b in BAD_ROWS], ids=[b[0] for b in BAD_ROWS])
def test_a_bad_comparison_is_refused_and_nothing_is_written(
    place: Workplace, spoil: Spoil, options: list[str], wanted: list[str]
) -> None:
    spoil(place)
    refused(place.compare(*options), *wanted)
    assert place.files() == []


def test_a_comparison_of_other_settings_is_left_alone(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distilbench.commands.run_folder.ray_cluster", reached)
    assert "Reached: " in place.compare("--seeds", "1", "--steps", "5").stderr
    config = place.runs / "mine" / "config.json"
    before = config.read_bytes()
    refused(place.compare("--seeds", "1", "--steps", "6"), "belong to another configuration", "steps: 5 there, 6 now")
    refused(place.compare("--seed", "1", "--steps", "5"), "seed: 0 there, 1 now")
    assert config.read_bytes() == before
    place.write_rows(row("good"), row("more"))
    assert "Reached: " in place.compare("--seeds", "2", "--steps", "5").stderr  # more rows, more seeds
    # A sweep of the same name is something else.
    refused(place.sweep(), "belong to another configuration", "method: nothing there, 'mcr2' now")


def test_results_of_another_configuration_are_left_alone(place: Workplace) -> None:
    config = place.runs / "mine" / "config.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"method": "mcr2", "seed": 7, "trials": 99}))
    before = config.read_bytes()
    refused(
        place.sweep(),
        str(config.parent),
        "belong to another configuration",
        "seed: 7 there, 0 now",
        "corpus:",
        "--name",
    )
    assert config.read_bytes() == before
    assert place.files() == [config.parent, config]


def test_a_run_that_another_process_works_on_is_left_alone(place: Workplace) -> None:
    from distilbench.commands.run_folder import one_writer

    with one_writer(place.runs / "mine"):
        refused(place.sweep(), str(place.runs / "mine"), "another process is running this sweep")
    assert place.files() == []


def test_an_interrupted_command_names_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python3", "-u", "-m", "distilbench", "sweep", "--method", "pca"])
    monkeypatch.setattr(sys, "argv", ["/somewhere/__main__.py", "sweep", "--method", "pca"])
    with pytest.raises(typer.Exit), exit_status(goes_on=True):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "interrupted; to go on: python -m distilbench sweep --method pca\n"


def test_options_that_are_not_given_are_not_set(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[str]] = []
    monkeypatch.setattr("distilbench.commands.sweep.sweep", lambda s, _: seen.append(s.model_fields_set) or place.root)
    CliRunner().invoke(app, ["sweep", "--method", "pca", "--max-pairs", "20000", "--no-dashboard"])
    assert seen == [{"method", "max_pairs", "dashboard"}]


@pytest.mark.parametrize("folder", ["store", "runs"])
@pytest.mark.parametrize(("number", "why"), [(errno.EROFS, "is read-only"), (errno.EMFILE, "takes no file")])
def test_a_folder_that_cannot_be_written_is_refused(
    place: Workplace, folder: str, number: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = place.root / "closed"
    closed.mkdir()
    real = tempfile.TemporaryFile

    def made(*, dir: Path) -> Any:  # the tests may be run by root, who may write everywhere
        if dir == closed:
            raise OSError(number, os.strerror(number))
        return real(dir=dir)

    monkeypatch.setattr(tempfile, "TemporaryFile", made)
    refused(place.sweep(f"--{folder}", str(closed / "mine")), f"--{folder} {closed / 'mine'}", f"{closed} {why}")
    file = place.root / "file"
    file.write_text("")
    refused(place.sweep(f"--{folder}", str(file)), f"--{folder} {file}", "is no folder")
    assert place.files() == []


def test_an_error_that_nobody_foresaw_is_one_line_and_a_log(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a reason\nof several lines")

    monkeypatch.setattr("distilbench.commands.run_folder.ray_cluster", fail)
    result = place.sweep()
    assert result.exit_code == 1 and "Traceback" not in result.output
    [line] = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert line.startswith("error: ZeroDivisionError: a reason (")
    log = Path(line.rpartition(" ")[2].rstrip(")"))
    assert "Traceback" in log.read_text() and "of several lines" in log.read_text()
    log.unlink()


def test_good_input_goes_on_to_the_cluster(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    # So that the tests above are refused for the reason they give, and not for another.
    monkeypatch.setattr("distilbench.commands.run_folder.ray_cluster", reached)
    result = place.sweep()
    assert "Reached: " in result.stderr
    assert json.loads((place.runs / "mine" / "config.json").read_text())["trials"] == 2
