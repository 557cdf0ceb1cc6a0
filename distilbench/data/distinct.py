"""Distinct rows of a stream of any length. DuckDB compares digests, on disk where memory does not suffice."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distilbench.data.sentences import read_arrow, text_digests, write_arrow
from distilbench.storage.files import disk_full

KEY = "key"
MEMORY = "256MB"
"""The memory of DuckDB; what does not fit goes to its temporary files."""

THREADS = 2
"""The threads of DuckDB: each wants a share of its memory."""

DIGESTS = pa.schema([("number", pa.int64()), ("one", pa.int64()), ("two", pa.int64())])


@dataclass(frozen=True)
class Distinct:
    """Rows `read`, those whose key was `taken`, `repeated` ones, and those `kept`; the rest was left out by a limit."""

    read: int
    taken: int
    repeated: int
    kept: int


def write_distinct(
    path: Path,
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    excluded_keys: Iterable[Sequence[str]],
    *,
    limit: int | None = None,
) -> Distinct:
    """Write the rows of `batches` whose column `key` comes for the first time and is not in `excluded_keys` to an Arrow file.

    The rows keep their order, and lose the column `key`. `excluded_keys` are lists of keys. Of more than `limit` rows a
    sample is taken, which depends on the rows' keys and on nothing else. Keys are compared by 128-bit digests. Memory:
    `MEMORY`, one batch, and 9 bytes for each row.
    """
    row_schema = pa.schema([field for field in schema if field.name != KEY])
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".distinct-") as work:
        spool = Path(work) / "rows.arrow"
        keys = Path(work) / "keys.arrow"
        with pa.OSFile(str(keys), "wb") as sink, pa.ipc.new_file(sink, DIGESTS) as writer:
            read = write_arrow(spool, _without_keys(batches, row_schema, writer), row_schema)
        counts, numbers = _firsts(Path(work), keys, read, excluded_keys, limit)
        keep = np.zeros(read, dtype=bool)
        keep[numbers] = True
        write_arrow(path, _chosen_rows(spool, keep), row_schema)
    return counts


def _without_keys(
    batches: Iterable[pa.RecordBatch], row_schema: pa.Schema, writer: pa.RecordBatchWriter
) -> Iterator[pa.RecordBatch]:
    """The batches without their keys, whose digests go to `writer`."""
    number = 0
    for batch in batches:
        writer.write_batch(_numbered(np.arange(number, number + batch.num_rows), batch.column(KEY).to_pylist()))
        number += batch.num_rows
        yield batch.select(row_schema.names)


def _numbered(numbers: NDArray[np.int64], keys: Sequence[str]) -> pa.RecordBatch:
    halves = text_digests(keys).view(np.int64).reshape(-1, 2)
    return pa.record_batch([pa.array(column) for column in (numbers, *halves.T)], schema=DIGESTS)


def _firsts(
    work: Path, keys: Path, read: int, excluded_keys: Iterable[Sequence[str]], limit: int | None
) -> tuple[Distinct, NDArray[np.int64]]:
    """Count the rows, and return the numbers of those to keep."""
    import duckdb

    taken_digests = (_numbered(np.zeros(len(batch), np.int64), batch) for batch in excluded_keys)
    con = duckdb.connect(
        str(work / "rows.duckdb"), config={"memory_limit": MEMORY, "temp_directory": str(work), "threads": THREADS}
    )
    try:
        con.register("numbered", read_arrow(keys))
        con.register("taken", pa.RecordBatchReader.from_batches(DIGESTS, taken_digests))
        con.execute("CREATE TABLE gone AS SELECT DISTINCT one, two FROM taken")
        con.execute("CREATE TABLE free AS SELECT * FROM numbered ANTI JOIN gone USING (one, two)")
        con.execute("CREATE TABLE firsts AS SELECT min(number) AS number, one, two FROM free GROUP BY one, two")
        free, distinct = con.execute(
            "SELECT (SELECT count(*) FROM free), (SELECT count(*) FROM firsts)"
        ).fetchone() or (0, 0)
        sampled = f"ORDER BY one, two LIMIT {int(limit)}" if limit is not None and limit < distinct else ""
        numbers = np.asarray(con.execute(f"SELECT number FROM firsts {sampled}").fetchnumpy()["number"], np.int64)
    except duckdb.Error as error:
        if "No space left" in str(error):
            raise disk_full(work, OSError(errno.ENOSPC, "No space left on device")) from None
        raise
    finally:
        con.close()
    return Distinct(read, read - free, free - distinct, len(numbers)), numbers


def _chosen_rows(spool: Path, keep: NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
    at = 0
    for batch in read_arrow(spool).to_batches():
        yield batch.filter(pa.array(keep[at : at + batch.num_rows]))
        at += batch.num_rows
