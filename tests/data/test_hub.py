"""Hub datasets as text sources: repository folders, saved datasets, and a hub that answers on this machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from datasets import Dataset, DatasetDict, Value

from distilbench.data import text
from distilbench.data.text import open_text, parse_source
from distilbench.errors import InputError

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


def read(source: str, column: str = "text") -> list[str]:
    return [text for text, _ in open_text(source, column)]


def test_a_configuration_a_split_and_a_column(repository: Path) -> None:
    assert read(f"hf:{repository}?config=en") == ["one", "two", "three"]
    assert read(f"hf:{repository}?config=en&split=validation") == ["four"]
    assert read(f"hf:{repository}?column=satz&config=de") == ["eins", "zwei"]
    assert read(f"hf:{repository}?config=de", "satz") == ["eins", "zwei"]


def test_a_folder_is_known_by_its_files(repository: Path) -> None:
    stream = open_text(f"hf:{repository}?config=en")
    assert len(list(stream)) == 3 and stream.summary() == "3 sentences (train)"
    before = stream.identity()
    assert before == open_text(f"hf:{repository}?config=en").identity()
    assert before != open_text(f"hf:{repository}?config=de&column=satz").identity()
    (repository / "more.txt").write_text("more")
    assert open_text(f"hf:{repository}?config=en").identity() != before


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


def test_rows_without_a_text_are_left_out(tmp_path: Path) -> None:
    rows = Dataset.from_dict({"text": ["one", None, " ", "two"]}).cast_column("text", Value("string"))
    rows.to_parquet(tmp_path / "train.parquet")
    assert read(f"hf:{tmp_path}") == ["one", "two"]


def test_a_damaged_file_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"text": "one"}\n{"text": \n')
    with pytest.raises(InputError, match=r"^hf:\S+: cannot be (opened|read after row \d+): [^\n]+$"):
        read(f"hf:{tmp_path}")


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("hf:me/mine", {}),
        (
            "hf:me/mine?revision=v1.0&column=a%20b&config=x&split=y",
            {"revision": "v1.0", "column": "a b", "config": "x", "split": "y"},
        ),
    ],
)
def test_parts_of_a_source(source: str, parts: dict[str, str]) -> None:
    assert parse_source(source) == ("me/mine", parts)


@pytest.mark.parametrize(
    "source", ["hf:", "hf:?split=a", "hf:a?b=c", "hf:a?split", "hf:a?split=", "hf:a?split=x&split=y"]
)
def test_a_source_that_is_not_understood(source: str) -> None:
    with pytest.raises(InputError, match=r"expected hf:NAME, then perhaps \? and config=.. & split=..") as caught:
        parse_source(source)
    assert str(caught.value).startswith(f"{source}: ")


def test_offline_and_no_such_folder() -> None:
    for source in ("hf:me/mine", "hf:no/such/folder"):
        with pytest.raises(InputError, match=rf"^{source}: no such folder, and not to be had from the hub: [^\n]+$"):
            read(source)


def test_on_the_hub_a_commit_is_read_and_not_a_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    read_at: list[str] = []

    def load_dataset(name: str, config: str | None, *, revision: str, streaming: bool) -> dict[str, Dataset]:
        read_at.append(revision)
        return {"train": Dataset.from_dict({"text": ["one", "two"]})}

    monkeypatch.setattr(text, "hub_silence", lambda: "")
    monkeypatch.setattr(
        "huggingface_hub.HfApi.dataset_info", lambda *_, revision: SimpleNamespace(sha=f"{revision}-sha")
    )
    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    stream = open_text("hf:me/mine?revision=v9")
    assert [text for text, _ in stream] == ["one", "two"] and read_at == ["v9-sha"]
    assert stream.identity() == ["hf:me/mine?revision=v9", "v9-sha"]
    assert stream.summary() == "2 sentences (train) of commit v9-sha"
