"""Hub datasets as text sources: repository folders, saved datasets, and a hub that answers on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import pytest
from datasets import Dataset, DatasetDict, Value
from hub_server import COMMIT, serve

from distilbench.data.hub_datasets import HubName
from distilbench.data.text import TextSettings, open_text
from distilbench.errors import InputError

PLAIN = TextSettings()
CARD = """---
configs:
- config_name: en
  data_files:
  - {split: train, path: en/train-*.parquet}
  - {split: validation, path: en/validation.parquet}
- config_name: de
  data_files:
  - {split: train, path: de/*.parquet}
---
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a dataset repository: two configurations, two shards, two splits."""
    root = tmp_path_factory.mktemp("hub") / "repository"
    (root / "en").mkdir(parents=True)
    (root / "de").mkdir()
    (root / "README.md").write_text(CARD)
    for i, texts in enumerate((["one", "two"], ["three"])):
        Dataset.from_dict({"text": texts, "n": list(range(len(texts)))}).to_parquet(root / f"en/train-{i}.parquet")
    Dataset.from_dict({"text": ["four"], "n": [4]}).to_parquet(root / "en/validation.parquet")
    Dataset.from_dict({"satz": ["eins", "zwei"]}).to_parquet(root / "de/train.parquet")
    return root


def read(source: str, settings: TextSettings = PLAIN) -> list[str]:
    return [text for _, text in open_text(source, settings)]


def test_a_configuration_a_split_and_a_column(repository: Path) -> None:
    assert read(f"hf:{repository}?config=en") == ["one", "two", "three"]
    assert read(f"hf:{repository}?config=en&split=validation") == ["four"]
    assert read(f"hf:{repository}?column=satz&config=de") == ["eins", "zwei"]
    assert read(f"hf:{repository}?config=de", TextSettings(column="satz")) == ["eins", "zwei"]


def test_a_folder_is_known_by_its_files(repository: Path) -> None:
    stream = open_text(f"hf:{repository}?config=en", PLAIN)
    assert list(stream) == [(1, "one"), (2, "two"), (3, "three")]
    assert stream.summary() == "3 sentences (train)"
    before = stream.identity()
    assert before == open_text(f"hf:{repository}?config=en", PLAIN).identity()
    assert before != open_text(f"hf:{repository}?config=de&column=satz", PLAIN).identity()
    (repository / "more.txt").write_text("more")
    assert open_text(f"hf:{repository}?config=en", PLAIN).identity() != before


def test_json_lines_without_a_card(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one", "n": 1}\n{"text": "two", "n": 2}\n')
    assert read(f"hf:{tmp_path}") == ["one", "two"]
    with pytest.raises(InputError, match=r"no column 'absent'; the columns are \['text', 'n'\]"):
        read(f"hf:{tmp_path}?column=absent")


@pytest.mark.parametrize("several", [False, True])
def test_what_save_to_disk_wrote(tmp_path: Path, several: bool) -> None:
    data = Dataset.from_dict({"text": ["one", "two"], "n": [1, 2]})
    saved: Any = DatasetDict(train=data, test=data.select([1])) if several else data
    saved.save_to_disk(tmp_path / "saved")
    assert read(f"hf:{tmp_path}/saved") == ["one", "two"]
    with pytest.raises(InputError, match=r"no split 'dev'; expected one of train" + (", test" if several else "")):
        read(f"hf:{tmp_path}/saved?split=dev")
    if not several:  # read as a plain folder it says what it is
        with pytest.raises(InputError, match=r"it is a saved dataset, which hf:.*saved reads"):
            read(f"{tmp_path}/saved")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("config=en&split=test", r"no split 'test'; expected one of train, validation"),
        ("config=en&column=satz", r"no column 'satz'; the columns are \['text', 'n'\]"),
        ("config=fr", r"cannot be opened: BuilderConfig 'fr' not found\. Available: \['en', 'de'\]"),
        ("split=train", r"cannot be opened: Config name is missing\. .*\['en', 'de'\]"),
        ("config=en&column=n", r"row 1: column 'n' is 0; expected a sentence \(a string\)"),
    ],
)
def test_what_the_dataset_does_not_have(repository: Path, query: str, message: str) -> None:
    source = f"hf:{repository}?{query}"
    with pytest.raises(InputError, match=message) as caught:
        read(source)
    assert str(caught.value).startswith(source)


def test_rows_without_a_sentence_are_bad_rows(tmp_path: Path) -> None:
    rows = Dataset.from_dict({"text": ["one", None, " ", "two"]}).cast_column("text", Value("string"))
    rows.to_parquet(tmp_path / "train.parquet")
    with pytest.raises(InputError, match=r"row 2: column 'text' is None; expected a sentence"):
        read(f"hf:{tmp_path}")
    assert read(f"hf:{tmp_path}", TextSettings(skip_bad_rows=True)) == ["one", "two"]


def test_a_damaged_file_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"text": "one"}\n{"text": \n')
    with pytest.raises(InputError, match=r"^hf:\S+: cannot be (opened|read after row \d+): [^\n]+$"):
        read(f"hf:{tmp_path}")


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("hf:me/mine", HubName("me/mine")),
        ("hf:me/mine?split=dev", HubName("me/mine", split="dev")),
        (
            "hf:me/mine?revision=v1.0&column=a%20b&config=x&split=y",
            HubName("me/mine", "x", "y", "a b", "v1.0"),
        ),
    ],
)
def test_parts_of_a_source(source: str, parts: HubName) -> None:
    assert HubName.parse(source) == parts


@pytest.mark.parametrize(
    "source", ["hf:", "hf:?split=a", "hf:a?b=c", "hf:a?split", "hf:a?split=", "hf:a?split=x&split=y"]
)
def test_a_source_that_is_not_understood(source: str) -> None:
    with pytest.raises(InputError, match=r"expected hf:NAME, then perhaps \? and config=.. & split=..") as caught:
        HubName.parse(source)
    assert str(caught.value).startswith(f"{source}: ")


def test_without_the_package_the_command_to_install_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)  # what an absent package looks like to `import`
    with pytest.raises(
        InputError, match=r"hf:me/mine: .* needs the package `datasets`; .*pip install 'distilbench\[hub\]'"
    ):
        read("hf:me/mine")


def test_offline_and_no_such_folder() -> None:
    with pytest.raises(InputError, match=r"^hf:me/mine: the hub cannot be reached: [^\n]+$"):
        read("hf:me/mine")
    with pytest.raises(InputError, match=r"^hf:no/such/folder: no such folder, and no name of a hub's dataset"):
        read("hf:no/such/folder")


READ = """
import json, sys
from distilbench.data.text import TextSettings, open_text
from distilbench.errors import InputError
for source in sys.argv[1:]:
    try:
        stream = open_text(source, TextSettings())
        print(json.dumps([[text for _, text in stream], stream.identity(), stream.summary()]))
    except InputError as error:
        print(json.dumps(str(error)))
"""


@pytest.mark.slow
def test_a_hub_that_answers(repository: Path, tmp_path: Path) -> None:
    """In a process of its own: where the hub is, and whether it may be asked, is settled at import."""
    files = {p.relative_to(repository).as_posix(): p.read_bytes() for p in repository.rglob("*") if p.is_file()}
    sources = [f"hf:me/mine{q}" for q in ("?config=en", "?revision=v9")] + ["hf:me/other"]
    with serve({"me/mine": files}) as (address, asked):
        environment = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0"}
        environment["USE_TORCH"] = "0"  # `datasets` would import it
        done = subprocess.run(
            [sys.executable, "-c", READ, *sources], env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    mine, revision, other = map(json.loads, done.stdout.splitlines())
    assert mine == [
        ["one", "two", "three"],
        ["hf:me/mine?config=en", COMMIT],
        f"3 sentences (train) of commit {COMMIT}",
    ]
    assert revision == "hf:me/mine?revision=v9: the dataset has no revision 'v9'"
    assert other.startswith("hf:me/other: the hub has no such dataset")
    # What is read is the commit, not a branch that may move meanwhile.
    assert f"/datasets/me/mine/resolve/{COMMIT}/en/train-0.parquet" in asked
    assert not any("/resolve/main/" in path for path in asked)


def test_this_version_of_datasets_runs_no_code() -> None:
    assert int(datasets.__version__.split(".")[0]) >= 4
