"""Distinct rows of a stream: first ones, in order, without those that are taken; sampled; larger than the memory."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from distilbench.data.distinct import KEY, Distinct, write_distinct
from distilbench.data.sentences import TEXT, read_arrow

SCHEMA = pa.schema([(KEY, pa.string()), (TEXT, pa.string())])


def batches(text: list[str], size: int = 7) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(text), size):
        part = text[start : start + size]
        yield pa.record_batch([pa.array([t.lower() for t in part]), pa.array(part)], schema=SCHEMA)


def taken(*keys: str) -> Iterator[list[str]]:
    yield list(keys)


def kept(path: Path) -> list[str]:
    table = read_arrow(path)
    assert table.column_names == [TEXT]
    return list(table.column(TEXT).to_pylist())


def test_first_rows_stay_in_order_and_taken_ones_go(tmp_path: Path) -> None:
    text = ["B", "a", "b", "c", "A", "d'x", "C", "e"]
    counts = write_distinct(tmp_path / "out.arrow", batches(text, 3), SCHEMA, taken("c", "zz"))
    assert kept(tmp_path / "out.arrow") == ["B", "a", "d'x", "e"]
    assert counts == Distinct(read=8, taken=2, repeated=2, kept=4)
    assert [p.name for p in tmp_path.iterdir()] == ["out.arrow"]


def test_order_does_not_depend_on_how_the_stream_is_cut(tmp_path: Path) -> None:
    rng = random.Random(0)
    text = [str(rng.randrange(20_000)) for _ in range(50_000)]
    wanted = list(dict.fromkeys(text))
    for size in (1000, 50_000):
        write_distinct(tmp_path / "out.arrow", batches(text, size), SCHEMA, taken())
        assert kept(tmp_path / "out.arrow") == wanted


def test_a_limit_takes_the_same_sample_whatever_the_order(tmp_path: Path) -> None:
    text = [f"s{i}" for i in range(1000)]
    found = []
    for order in (text, text[::-1], [*text, *text]):
        counts = write_distinct(tmp_path / "out.arrow", batches(order), SCHEMA, taken("s3"), limit=100)
        found.append(kept(tmp_path / "out.arrow"))
        assert counts.kept == 100
    assert found[0] == found[1][::-1] == found[2]
    assert len({t[:2] for t in found[0]}) > 5  # not the first hundred
    write_distinct(tmp_path / "out.arrow", batches(text), SCHEMA, taken(), limit=1000)
    assert kept(tmp_path / "out.arrow") == text


def test_an_empty_stream_gives_an_empty_file(tmp_path: Path) -> None:
    assert write_distinct(tmp_path / "out.arrow", iter(()), SCHEMA, iter(())) == Distinct(0, 0, 0, 0)
    assert kept(tmp_path / "out.arrow") == []


LARGE = """
import sys, threading, time, pyarrow as pa
from pathlib import Path
from distilbench.data.distinct import write_distinct
from distilbench.data.sentences import SentenceFile
import duckdb
schema = pa.schema([("key", pa.string()), ("text", pa.string())])
peak = 0
def watch():  # pages of mapped files are not counted: they are the kernel's to drop
    global peak
    while True:
        peak = max(peak, int(next(l for l in open("/proc/self/status") if l.startswith("RssAnon")).split()[1]) // 1024)
        time.sleep(0.005)
threading.Thread(target=watch, daemon=True).start()
def stream():
    for batch in range(120):
        text = [f"{batch} {row} " + "x y z " * 800 for row in range(1000)]
        yield pa.record_batch([pa.array(text), pa.array(text)], schema=schema)
time.sleep(0.1)
before = peak
print(write_distinct(Path(sys.argv[1]), stream(), schema, iter(())).kept, before, peak)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_bounded_by_a_figure_below_the_size_of_the_text(tmp_path: Path) -> None:
    # 120,000 sentences of 4.8 kB: 576 MB of text, twice (key and text).
    out = subprocess.run(
        [sys.executable, "-c", LARGE, str(tmp_path / "out.arrow")], capture_output=True, text=True, check=True
    )
    rows, before, after = map(int, out.stdout.split())
    assert rows == 120_000 and (tmp_path / "out.arrow").stat().st_size > 550e6
    assert after - before < 300  # MiB
