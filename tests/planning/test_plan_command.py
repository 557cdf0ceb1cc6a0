"""`distilbench plan` as a command: on the built-in corpus with given rates, bad input, and a real probe."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from planning_samples import given_rates
from typer.testing import CliRunner

from distilbench.cli import app
from distilbench.storage.files import write_json

slow = pytest.mark.skipif(not os.environ.get("DISTILBENCH_SLOW"), reason="takes minutes: set DISTILBENCH_SLOW=1")


def command(*words: Any) -> Any:
    return CliRunner().invoke(app, ["plan", *map(str, words)], env={"COLUMNS": "200", "NO_COLOR": "1"})


@pytest.fixture
def rates_file(tmp_path: Path) -> Path:
    write_json(tmp_path / "rates.json", given_rates().model_dump())
    return tmp_path / "rates.json"


def test_a_plan_of_the_built_in_corpus(tmp_path: Path, rates_file: Path) -> None:
    where = ["--store", tmp_path / "store", "--runs", tmp_path / "runs"]
    machines = ["--gpus", "1,8,64@2.50", "--nodes", "4x8"]
    done = command("--method", "mcr2,hpd", "--rates", rates_file, *machines, *where, "--json", tmp_path / "plan.json")
    assert done.exit_code == 0, done.output
    for text in (
        "1 GPU",
        "64 GPUs",
        "4x8",
        "search (mcr2)",
        "tokenise",
        "if no trial were stopped",
        "do not predict a GPU",
    ):
        assert text in done.output, text
    assert done.output.index("do not predict a GPU") < done.output.index("┏"), "what is measured leads"
    assert [done.output.count(f"at a {kind}'s rates") for kind in ("CPU", "GPU")] == [3, 0]
    assert done.output.index("4x8: ") < done.output.index("1 GPU: "), "and stands first"
    found = json.loads((tmp_path / "plan.json").read_text())
    assert [c["cluster"] for c in found["clusters"]] == ["1 GPU", "8 GPUs", "64 GPUs", "4x8"]
    assert [c["trials_at_once"] for c in found["clusters"]] == [4, 32, 256, 32]
    seconds = [c["seconds"] for c in found["clusters"]]
    assert seconds[0] > seconds[1] >= seconds[2] > 0
    assert found["clusters"][2]["dollars"] == pytest.approx(64 * 2.5 * seconds[2] / 3600)
    assert found["clusters"][3]["dollars"] is None
    assert [m["trials"] for m in found["methods"]] == [24, 6]
    assert not (tmp_path / "runs").exists(), "a plan writes nothing into runs"


def test_a_plan_of_the_whole_question(tmp_path: Path, rates_file: Path) -> None:
    front = Path(__file__).parents[2] / "search_spaces" / "front"
    where = ["--store", tmp_path / "store", "--runs", tmp_path / "runs", "--json", tmp_path / "plan.json"]
    asked = ["--method", "all", "--space", front, "--objectives", "quality,latency,bytes", "--time-budget", "1h"]
    done = command(*asked, "--rates", rates_file, *where)
    assert done.exit_code == 0, done.output
    methods = [m["method"] for m in json.loads((tmp_path / "plan.json").read_text())["methods"]]
    assert sorted(methods) == sorted(path.stem for path in front.glob("*.yaml"))
    assert f"this is at most: students of {', '.join(methods)} get no more" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "error: no rates: expected --measure FILE (or --probe) to measure them here"),
        (["--rates", "nowhere.json"], "error: --rates nowhere.json: cannot be read"),
        (["--rates", "RATES", "--gpus", "many"], "error: --gpus many: expected numbers of GPUs"),
        (["--rates", "RATES", "--nodes", "8x"], "error: --nodes 8x: '8x' is not COUNTxCPUS"),
        (
            ["--rates", "RATES", "--nodes", "1x2", "--cpus-per-trial", "4"],
            "error: --nodes 1x2: a trial of 4 CPUs and 0 GPUs fits on none",
        ),
        (["--rates", "RATES", "--stopping", "never"], "error: --stopping never: expected one of"),
        (
            ["--rates", "RATES", "--trials", "1", "--method", "mcr2,hpd"],
            "error: --trials 1: 2 methods share them, and each needs one; expected --trials 2 or more",
        ),
    ],
)
def test_bad_input(words: list[str], message: str, rates_file: Path) -> None:
    method = [] if "--method" in words else ["--method", "mcr2"]
    done = command(*method, *(str(rates_file) if word == "RATES" else word for word in words))
    assert done.exit_code == 2
    assert message in done.output and "Traceback" not in done.output


@slow
@pytest.mark.timeout(600)
def test_a_probe_measures_everything_that_a_plan_needs(tmp_path: Path) -> None:
    file = tmp_path / "rates.json"
    options = ["--method", "hpd", "--corpus-size", "300", "--trials", "4", "--cpus", "2", "--store", tmp_path / "store"]
    done = command(*options, "--measure", file, "--nodes", "1x2", "--json", tmp_path / "plan.json")
    assert done.exit_code == 0, done.output
    rates = json.loads(file.read_text())
    own = rates["training"]["hpd"]
    assert rates["side_by_side"] == 2 and rates["device"] in ("cpu", "cuda")
    assert rates["encode_per_s"] > 1 and rates["tokenise_per_s"] > 100 and rates["row_s"] > 0 and rates["driver_s"] > 0
    assert own["phases"]["distil"]["batch"] == 64 and own["phases"]["distil"]["step_s"] > 0
    assert own["begin_s"] > 0 and own["judge_s"] > 0 and own["embed_per_s"] > 0 and own["finish_s"] > 0
    planned = json.loads((tmp_path / "plan.json").read_text())["clusters"][0]
    assert planned["not_measured"] == [] and planned["seconds"] > 0
    again = command(*options, "--rates", file, "--nodes", "1x2", "--json", tmp_path / "again.json")
    assert (
        again.exit_code == 0
        and json.loads((tmp_path / "again.json").read_text())["clusters"][0]["stages"] == planned["stages"]
    )
