"""Text sources as streams: order, bad and empty rows, counts and identity."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from distilbench.data.text import open_text, text_files
from distilbench.errors import InputError


def lines(path: Path, *texts: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{t}\n" for t in texts))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files that are read, and others that are not."""
    lines(tmp_path / "b.txt", "three", "four")
    lines(tmp_path / "a.tsv", "text", "one", "two")
    lines(tmp_path / "c.jsonl", '{"text": "five"}')
    for other in ("_SUCCESS.txt", ".hidden.txt", "notes.md", "inner/d.txt"):
        lines(tmp_path / other, "not read")
    return tmp_path


def test_files_of_a_folder_come_sorted(folder: Path) -> None:
    stream = open_text(str(folder))
    assert [text for text, _ in stream] == ["one", "two", "three", "four", "five"]
    assert stream.summary() == "5 sentences (train)"


def test_a_glob_takes_what_it_names(folder: Path) -> None:
    assert [p.name for p in text_files(f"{folder}/[bc].*")] == ["b.txt", "c.jsonl"]
    assert [p.name for p in text_files(f"{folder}/**/*.txt")] == ["b.txt", "d.txt"]
    lines(folder / "a[1].txt", "a file whose name looks like a glob")
    assert text_files(f"{folder}/a[1].txt") == [folder / "a[1].txt"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere", r"nowhere: no such file or folder; expected one, a glob, or hf:NAME"),
        ("notes.md", r"notes\.md: the format is not known by the file's name; expected NAME\.tsv"),
        ("*.md", r"\*\.md: no file of a known format; expected NAME\.tsv"),
        ("inner/deeper", r"deeper: no file of a known format"),
    ],
)
def test_a_source_without_a_readable_file(folder: Path, source: str, message: str) -> None:
    (folder / "inner" / "deeper").mkdir()
    with pytest.raises(InputError, match=message):
        open_text(str(folder / source))


def test_a_bad_row_stops_and_one_without_a_text_is_left_out(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", '{"text": "one"}', '{"text": " "}', '{"text": null}', '{"text": "two"}', "{")
    with pytest.raises(InputError, match=r"a\.jsonl, row 5: malformed JSON"):
        list(open_text(str(path)))
    stream = open_text(str(lines(path, *path.read_text().splitlines()[:4])))
    assert [text for text, _ in stream] == ["one", "two"] and (stream.kept, stream.empty) == (2, 2)
    assert stream.summary() == "2 sentences (train); 2 rows without a text left out"
    with pytest.raises(InputError, match=r"a\.jsonl: none of its 2 rows has a text in column 'text'"):
        list(open_text(str(lines(path, *path.read_text().splitlines()[1:3]))))


def test_the_identity_is_that_of_the_files_in_order(folder: Path, tmp_path: Path) -> None:
    def identity(source: Path) -> list[str]:
        return open_text(str(source)).identity()

    same = Path(shutil.copytree(folder, tmp_path / "elsewhere"))
    assert identity(same) == identity(folder) and len(set(identity(folder))) == 3
    lines(same / "a.txt", "another")
    assert identity(same) != identity(folder)


MEMORY = """
import sys
from distilbench.data.text import open_text
import pyarrow.parquet

def peak():
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmHWM"))

before = peak()
count = sum(1 for _ in open_text(sys.argv[1]))
print(count, (peak() - before) // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize("kind", ["parquet", "txt"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, kind: str) -> None:
    # 300,000 sentences, 60 MB of text: in one row group, so that reading it whole would show.
    path = tmp_path / f"a.{kind}"
    texts = [f"{i * 2654435761 % 4294967296:x} " * 20 for i in range(300_000)]
    if kind == "txt":
        lines(path, *texts)
    else:
        table = pa.table({"text": texts})
        parquet.write_table(table, path, row_group_size=len(texts), use_dictionary=False, compression="none")
    assert path.stat().st_size > 45e6
    done = subprocess.run([sys.executable, "-c", MEMORY, str(path)], capture_output=True, text=True, check=True)
    count, grown = map(int, done.stdout.split())
    assert count == 300_000 and grown < 30, f"{grown} MiB"
