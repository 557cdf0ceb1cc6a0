"""Data, runs and reports that are named by URIs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bucket import Bucket
from typer.testing import CliRunner

from distilbench.cli import app
from distilbench.cluster.provenance import provenance
from distilbench.data.text import text_files
from distilbench.errors import InputError
from distilbench.records import Rung, TrialRecord, append_records
from distilbench.settings.sweep import SweepSettings
from distilbench.storage.folder_copy import NO_TRAININGS, ONLY_RECORDS, local_folder, local_runs, local_text
from distilbench.storage.remote import Remote, files_in


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTILBENCH_STORE", str(tmp_path / "own store"))


def test_a_data_folder_is_fetched_once(
    storage: Remote, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = storage / "small"
    there.put_all(files_in(data_folder))
    found = local_folder(there.uri, "--data")
    assert found.name == "small" and found.is_relative_to(tmp_path / "own store")
    assert {n: p.read_bytes() for n, p in files_in(found).items()} == {
        n: p.read_bytes() for n, p in files_in(data_folder).items()
    }
    fetch, seen = Remote.fetch, []
    monkeypatch.setattr(Remote, "fetch", lambda self, name, *more: (seen.append(name), fetch(self, name, *more)))
    assert local_folder(there.uri, "--data") == found and seen == []
    there.write("sts/STSB.dev.tsv", b"sentence1\tsentence2\tscore\na\tb\t1\n")
    there.delete("nli/triplets.tsv")
    local_folder(there.uri, "--data")
    assert seen == ["sts/STSB.dev.tsv"] and not (found / "nli" / "triplets.tsv").exists()


def test_text_is_a_file_a_folder_or_a_glob(storage: Remote) -> None:
    for name in ("dump/a.txt", "dump/b.txt", "dump/more/c.txt", "other/d.txt"):
        storage.write(name, name.encode())

    def found(source: str) -> list[str]:
        return [p.read_text() for p in text_files(local_text(f"{storage}/{source}"))]

    assert found("dump/b.txt") == ["dump/b.txt"]
    assert found("dump") == ["dump/a.txt", "dump/b.txt"]
    assert found("dump/**/*.txt") == ["dump/a.txt", "dump/b.txt", "dump/more/c.txt"]
    assert found("dump/?.txt") == ["dump/a.txt", "dump/b.txt"]
    assert local_text("here/*.txt") == "here/*.txt" and local_text("hf:owner/name") == "hf:owner/name"
    with pytest.raises(InputError, match=r"--text .*nothing is there"):
        local_text(f"{storage}/none")


def test_only_what_a_command_reads_of_a_run_is_fetched(storage: Remote) -> None:
    run = storage / "runs" / "r"
    for name in ("config.json", "study.db", "students/a/modules.json", "trials/0/rungs.json", "predictions/p.npy"):
        run.write(name, b"{}")
    [folder] = local_runs([run.uri], ONLY_RECORDS)
    assert folder.name == "r" and set(files_in(folder)) == {"config.json"}
    local_runs([run.uri], NO_TRAININGS)
    assert set(files_in(folder)) == {"config.json", "study.db", "students/a/modules.json", "predictions/p.npy"}
    [again] = local_runs([run.uri], ONLY_RECORDS)  # what another command has fetched stays
    assert again == folder and (folder / "students" / "a" / "modules.json").exists()


def test_settings_of_uris(storage: Remote, data_folder: Path) -> None:
    (storage / "small").put_all(files_in(data_folder))
    storage.write("text.txt", b"a sentence\n")
    earlier = f"{storage}/runs/a/"
    settings = SweepSettings(
        method="mcr2",
        data=f"{storage}/small",
        text=(f"{storage}/text.txt",),
        storage=f"{storage}/",
        warm_start=earlier,
    )
    assert settings.storage == str(storage)
    assert settings.data_folder is not None and settings.data_folder.is_dir()
    assert Path(settings.texts.sources[0]).read_text() == "a sentence\n"
    assert settings.warm_start == f"{storage}/runs/a"
    assert SweepSettings(method="mcr2", warm_start="runs/a/").warm_start == "runs/a"
    assert SweepSettings(method="mcr2").storage is None


@pytest.mark.parametrize(
    "arguments",
    [
        ["sweep", "--method", "mcr2", "--storage", "s3://KEY:SECRET@bench/p"],
        ["prepare", "--storage", "s3://bench/p?secret_key=SECRET"],
        ["sweep", "--method", "mcr2", "--data", "s3://KEY:SECRET@bench/p"],
        ["report", "s3://KEY:SECRET@bench/runs/r", "--out", "out"],
        ["report", "file:///nowhere", "--out", "s3://KEY:SECRET@bench/p"],
        ["status", "s3://KEY:SECRET@bench/runs/r"],
    ],
)
def test_a_secret_in_a_uri_is_refused_before_anything_is_written(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if arguments[:2] == ["report", "file:///nowhere"]:
        arguments = ["report", str(tmp_path), *arguments[2:]]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2, done.output
    if "no scores.jsonl" not in done.output:
        assert "credentials" in done.stderr
    assert "SECRET" not in done.output and "KEY:" not in done.output
    assert not list(tmp_path.iterdir())


def test_a_bucket_that_is_not_there_is_one_message(bucket: Bucket, tmp_path: Path, data_folder: Path) -> None:
    done = CliRunner().invoke(
        app, ["prepare", "--data", str(data_folder), "--storage", "s3://nowhere/p", "--store", str(tmp_path / "store")]
    )
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("error: s3://nowhere/p: ") and "NO_SUCH_BUCKET" in done.stderr
    assert "Traceback" not in done.output


def test_the_status_of_a_run_in_storage(storage: Remote, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text(json.dumps({"corpus_fingerprint": "x", "method": "mcr2", "trials": 3}))
    record = TrialRecord(
        run="r",
        number=0,
        state="COMPLETE",
        reason="",
        method="mcr2",
        params={"output_dim": 8},
        seed=0,
        dim=8,
        objective=1.5,
        rungs=[Rung(rung=1, step=10, objective=1.5, metrics={"dev_score": 70.0})],
        provenance=provenance(),
    )
    append_records(run / "trials.jsonl", [record])
    there = storage / "runs" / "r"
    there.put_all(files_in(run))
    done = CliRunner().invoke(app, ["status", there.uri])
    assert done.exit_code == 0 and "1 of 3 trials finished (1 COMPLETE" in done.stdout, done.output
    nothing = CliRunner().invoke(app, ["status", (storage / "runs" / "other").uri])
    assert nothing.exit_code == 2 and "nothing is there" in nothing.stderr
