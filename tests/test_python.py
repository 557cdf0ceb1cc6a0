"""Python: the functions have the commands' settings, and a run is what its pages say."""

from __future__ import annotations

import inspect
import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import make_encoder, random_sentences
from sentence_transformers import SentenceTransformer
from test_docs import blocks, text_of

import distilbench
from distilbench.cluster.provenance import provenance
from distilbench.commands import evaluate as evaluate_module
from distilbench.commands import sweep as sweep_module
from distilbench.commands.run_folder import one_writer
from distilbench.evaluation.faiss_codes import Code
from distilbench.records import Rung, Score, ScoreRecord, TrialRecord, append_records
from distilbench.reporting.best import best_of_runs
from distilbench.reporting.board import leaderboard
from distilbench.reporting.choice import ServingBudget
from distilbench.reporting.runs import read_runs
from distilbench.settings.commands import EvaluateSettings
from distilbench.settings.option import Settings
from distilbench.settings.sweep import SweepSettings
from distilbench.storage.files import write_json

ROOT = Path(__file__).parents[1]
SPACE = """
method: mcr2
budget: {trials: 4, steps: 12, rungs: 2, eta: 2, confirm: {seeds: 2}}
parameters:
  output_dim: {choices: [4, 8]}
  lr: {low: 0.0001, high: 0.01, log: true}
fixed: {batch_size: 16, clusters: 4, lambda: 1}
"""


# The functions


@pytest.mark.parametrize("name", ["sweep", "evaluate", "report"])
def test_a_function_has_the_settings_of_its_command(name: str) -> None:
    import distilbench.cli

    function, fields = getattr(distilbench, name), getattr(distilbench.cli, f"{name.capitalize()}Settings").model_fields
    signature = inspect.signature(function)
    assert set(signature.parameters) == set(fields)
    for parameter in signature.parameters.values():
        field = fields[parameter.name]
        if field.is_required():
            assert parameter.default is inspect.Parameter.empty
        else:
            assert parameter.default == field.get_default(call_default_factory=True)
        assert f"    {parameter.name}" in (function.__doc__ or "") and (field.description or "?") in function.__doc__


class _Given(Exception):
    def __init__(self, settings: Settings) -> None:
        self.settings = settings


def given(monkeypatch: pytest.MonkeyPatch, module: Any, *arguments: Any, **settings: Any) -> Any:
    """The settings that a function makes of its arguments."""

    def stop(made: Settings, console: Any) -> None:
        raise _Given(made)

    name = module.__name__.rpartition(".")[2]
    monkeypatch.setattr(module, name, stop)
    with pytest.raises(_Given) as caught:
        getattr(distilbench, name)(*arguments, **settings)
    return caught.value.settings


def test_values_are_taken_as_python_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made = given(
        monkeypatch, sweep_module, ["mcr2", "hpd"], data=Path("d"), text="a.txt", time_budget="90s", trials=None
    )
    assert made == SweepSettings(method="mcr2,hpd", data="d", text=("a.txt",), time_budget="90s")
    assert made.model_fields_set == {"method", "data", "text", "time_budget"}, "a default that was not said is none"
    made = given(monkeypatch, evaluate_module, Path("m"), dims=64, tasks=["sts"], runs="r", quantise="int8,binary")
    assert made == EvaluateSettings(model=("m",), dims=(64,), tasks=("sts",), runs=Path("r"), quantise="int8,binary")


def test_bad_values_are_refused_as_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(distilbench.InputError, match=r"^--time-budget soon: expected a time such as 90s"):
        distilbench.sweep(method="mcr2", time_budget="soon")
    with pytest.raises(distilbench.InputError, match=r"^--method mcr3: unknown method; expected one of"):
        distilbench.sweep("mcr3")
    with pytest.raises(TypeError, match="tirals"):
        distilbench.sweep("mcr2", tirals=3)
    with pytest.raises(TypeError, match="method"):
        distilbench.sweep()
    assert list(tmp_path.iterdir()) == []


def test_too_few_trials_for_the_methods_are_refused_before_anything_is_read() -> None:
    with pytest.raises(distilbench.InputError) as caught:
        distilbench.sweep("all", trials=2, data="no-such-folder")
    assert str(caught.value).startswith("--trials 2: ")
    assert " methods share them, and each needs one; expected --trials " in str(caught.value)
    assert "or --method with 2 of " in str(caught.value) and "mcr2" in str(caught.value)


def test_the_command_line_starts_without_it() -> None:
    heavy = ("pandas", "torch", "ray", "distilbench.api")
    code = f"import sys, distilbench.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'sweeep'"):
        _ = distilbench.sweeep
    assert set(distilbench.__all__) <= set(dir(distilbench))


def test_an_interrupted_call_gives_the_run_back(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt) as kept, one_writer(tmp_path / "run"):  # a notebook keeps the traceback
        raise KeyboardInterrupt
    with one_writer(tmp_path / "run"):
        with pytest.raises(distilbench.InputError, match="another process is running this sweep"):
            with one_writer(tmp_path / "run"):
                pass
    assert kept.tb is not None


# A run


def score(method: str, code: str, quality: float, **changes: Any) -> ScoreRecord:
    """A row of 32 dimensions, of which the test score is `quality`."""
    sts = {"task": "sts", "set": "STSB", "metric": "spearman", "variant": "all", "n": 40}
    fields: dict[str, Any] = {
        "record_id": f"{method}-{code}",
        "run": method,
        "label": f"{method} d=32",
        "role": "student",
        "method": method,
        "dim": 32,
        "bytes_per_vector": 128 if code == "float32" else 32,
        "teacher": "t",
        "start": "",
        "parameters": 1000,
        "trial": 0,
        "hyperparameters": {},
        "seed": 0,
        "corpus": "c",
        "corpus_fingerprint": "f",
        "demonstration": False,
        "scores": [Score(split=split, value=quality, **sts) for split in ("dev", "test")],
        "quantisation": code,
        "indexes": [],
        "model": "students/s",
        "provenance": provenance(),
    }
    return ScoreRecord(**fields | changes)


def trial(method: str, number: int) -> TrialRecord:
    rungs = [Rung(rung=1, step=12, objective=number, metrics={"dev_score": 70.0 + number, "rung_seconds": 0.5})]
    fields: dict[str, Any] = {"run": method, "number": number, "method": method, "dim": 32, "objective": float(number)}
    params = {"lr": 0.001 * (1 + number), "batch_size": 16, "output_dim": 32}
    return TrialRecord(
        **fields, state="COMPLETE", reason="", params=params, seed=0, rungs=rungs, provenance=provenance()
    )


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two methods' runs as a sweep leaves it; hpd's student is a real encoder with its int8 code."""
    folder = tmp_path_factory.mktemp("swept") / "swept"
    for method, quality in (("hpd", 80.0), ("mcr2", 75.0)):
        codes = ("float32", "int8")
        rows = [score(method, code, quality - n) for n, code in enumerate(codes)]
        append_records(folder / method / "scores.jsonl", [*rows, score("teacher", "float32", 81.0, role="teacher")])
        append_records(folder / method / "trials.jsonl", [trial(method, n) for n in range(3)])
        write_json(folder / method / "config.json", {"corpus_fingerprint": "f", "method": method, "trials": 3})
    model = make_encoder(folder / "hpd" / "students" / "s")
    Code.calibrate("int8", SentenceTransformer(str(model), device="cpu").encode(random_sentences(64, 1))).save(model)
    return folder


def test_a_call_gives_its_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sweep_module, "sweep", lambda settings, _: settings.report_folder / "mine" / "index.html")
    run = distilbench.sweep("mcr2", runs=tmp_path / "runs")
    assert run.page == tmp_path / "reports" / "mine" / "index.html" and run.place == str(tmp_path / "runs" / "mine")


def test_the_frames_have_what_the_records_have(swept: Path) -> None:
    run = distilbench.Run(swept)
    records = read_runs([swept])
    board = leaderboard(records)
    scores, trials = run.scores(), run.trials()
    assert list(scores["id"]) == [row.anchor for row in board.rows]
    for row, (_, line) in zip(board.rows, scores.iterrows(), strict=True):
        assert line["test"] == pytest.approx(row.test.value, nan_ok=True)
        assert line["dev"] == pytest.approx(row.dev.value, nan_ok=True)
        assert (line["bytes"], line["code"], line["seeds"]) == (
            row.record.bytes_per_vector,
            row.record.quantisation,
            len(row.seeds),
        )
    assert "sts_STSB" in scores and all(name.isidentifier() for name in scores)
    recorded = [r for r in records if r.kind == "trial"]
    assert len(trials) == len({(r.run, r.number, r.seed) for r in recorded})
    assert {"trial", "state", "dev", "dev_pca", "lr", "batch_size", "seconds"} <= set(trials) and len(trials) == 6
    front = run.front()
    assert list(front["bytes"]) == sorted(front["bytes"]) and front["front"].all()
    assert list(front["test"]) == sorted(front["test"])


def test_the_best_is_that_of_the_command(swept: Path) -> None:
    best = distilbench.Run(swept).best(bytes=32)
    assert best.to_json() == best_of_runs([swept], ServingBudget(32)).to_json()
    assert repr(best) == best.text()


def test_a_student_embeds_and_codes_as_it_was_scored(swept: Path) -> None:
    run = distilbench.Run(str(swept))
    scores = run.scores()
    kept = scores[(scores.role == "student") & (scores.method == "hpd")]
    whole = run.student(kept[kept.code == "float32"].iloc[0]["id"])
    coded = run.student(kept[(kept.code == "int8") & (kept.dim == whole.record.dim)].iloc[0]["id"])
    texts = ["the red dog runs", "a cat sees the house"]
    assert whole.code is None and whole.encode(texts).shape == (2, whole.record.dim)
    codes = coded.encode(texts)
    assert codes.dtype == np.uint8 and codes.nbytes == 2 * coded.record.bytes_per_vector
    np.testing.assert_allclose(coded.model.encode(texts), whole.encode(texts), rtol=1e-6)
    assert "int8" in repr(coded)
    with pytest.raises(distilbench.InputError, match="not both"):
        run.student("a name", bytes=8)


def test_figures_are_plotly_and_an_unknown_one_is_refused(swept: Path) -> None:
    import plotly.graph_objects as go

    run = distilbench.Run(swept)
    figure = run.figure("quality-bytes")
    assert isinstance(figure, go.Figure) and len(figure.data) > 1 and figure.layout.title.text
    assert isinstance(distilbench.Run(swept / "hpd").figure("history"), go.Figure)
    with pytest.raises(distilbench.InputError) as caught:
        run.figure("history")
    assert str(caught.value).startswith("figure 'history': the run has no such figure; expected one of ")
    assert "quality-bytes" in str(caught.value) and str(caught.value).endswith("swept/METHOD")


def test_a_place_without_a_run() -> None:
    with pytest.raises(distilbench.InputError, match="no-such: no such folder"):
        distilbench.Run("no-such").scores()


# The pages


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_page_about_python_runs(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every block of docs/python.md, one after the other, in a folder with small things of the names that it has."""
    shutil.copytree(data_folder, tmp_path / "data")
    shutil.copytree(encoder_folder, tmp_path / "my-teacher")
    make_encoder(tmp_path / "my-model", width=32, layers=1, seed=9)
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "search_spaces" / "mcr2.yaml").write_text(SPACE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    names: dict[str, Any] = {}
    for block in blocks(text_of("docs/python.md")):
        exec(compile(textwrap.dedent(block), "docs/python.md", "exec"), names)
    import ray

    assert ray.is_initialized(), "the cluster that was joined before stays"
    trials = names["trials"]  # a stopped trial that was trained to its end has two rows
    assert len(trials.drop_duplicates(["trial", "seed"])) == 4 + 2 and sum(~trials["confirms"]) == 4
    assert set(names["outside"].scores()["dim"]) == {8, 32}
    assert Path(names["page"]).is_file() and (tmp_path / "quality.html").stat().st_size > 1000
    assert (tmp_path / "runs" / "first" / "log.txt").read_text().count("scored") == 0
    log = (tmp_path / "runs" / "first" / "log.txt").read_text()
    assert "Spearman STS12" in log and "trained students/mcr2-d4" in log
    first = names["distilbench"].Run("runs/first")
    again = names["distilbench"].sweep("mcr2", data="data", teacher="my-teacher", trials=4, name="first")
    assert again.page == (tmp_path / "reports" / "first" / "index.html") and again.place == str(Path("runs/first"))
    assert first.scores().equals(again.scores()), "the same call again changes nothing"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_example_notebook_runs(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(ROOT / "examples" / "sweep.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is kept without outputs"
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "search_spaces" / "mcr2.yaml").write_text(SPACE)
    [code] = [cell for cell in notebook.cells if "max_sentences=300" in cell.source]
    small = f'data="{data_folder}", teacher="{encoder_folder}", store="store", cpus=2'
    code.source = code.source.replace("max_sentences=300", small)
    nbclient.NotebookClient(notebook, timeout=500, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    told = json.dumps(outputs)
    assert "<table" in told and "application/vnd.plotly" in told and "bytes per vector" in told
    for noise in ("logging.cc", "streaming_executor", "Progress bars disabled", "Warning"):
        assert noise not in told, noise
