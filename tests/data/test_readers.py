"""Files of every format: what is read, and that every defect names file, row and value."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from distilbench.data import readers
from distilbench.data.readers import finite_number, format_of, read_columns, sentence
from distilbench.errors import InputError

TEXTS = ["Grüße", "a, b", 'say "hi"', "split\u2028no\x0cway", "x" * 3000]


def write(path: Path, texts: list[str]) -> Path:
    """`texts` in the format of the file's name, with a column before and one behind where it has columns."""
    rows = list(enumerate(texts))
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    if kind == "parquet":
        parquet.write_table(pa.table({"n": list(range(len(texts))), "text": texts}), path)
        return path
    if kind == "tsv":
        content = "n\ttext\tm\n" + "".join(f"{i}\t{t}\tz\n" for i, t in rows)
    elif kind == "csv":
        quoted = [t.replace('"', '""') for t in texts]
        content = "n,text,m\n" + "".join(f'{i},"{t}",z\n' for i, t in enumerate(quoted))
    elif kind == "txt":
        content = "".join(t + "\n" for t in texts)
    else:
        content = "".join(json.dumps({"n": i, "text": t}) + "\n" for i, t in rows)
    data = content.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def good(path: Path, column: str = "text") -> list[tuple[int, str]]:
    return [(row, sentence(path, row, column, value)) for row, (value,) in read_columns(path, (column,))]


ALL = ["a.tsv", "a.csv", "a.jsonl", "a.ndjson", "a.txt", "a.parquet"]


@pytest.mark.parametrize("name", [*ALL, *(f"{n}.gz" for n in ALL if n != "a.parquet")])
def test_every_format_holds_the_same_sentences(tmp_path: Path, name: str) -> None:
    first = 2 if name.startswith(("a.tsv", "a.csv")) else 1  # where row 1 is a header
    assert good(write(tmp_path / name, TEXTS)) == list(enumerate(TEXTS, start=first))


@pytest.mark.parametrize("name", ["a.json", "a.parquet.gz", "a", "a.gz", "README.md", "a.tsv.bz2"])
def test_what_is_no_known_format_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("text\n")
    assert format_of(tmp_path / name) is None
    with pytest.raises(InputError, match=rf"{name}: the format is not known.*expected NAME\.tsv, \.csv, \.jsonl"):
        good(tmp_path / name)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "end"])
def test_byte_order_marks_and_line_ends(tmp_path: Path, end: str, last: str) -> None:
    for name, head in (("a.txt", ""), ("a.tsv", "text"), ("a.csv", "text")):
        body = [*([head] if head else []), "one", "two"]
        path = tmp_path / name
        path.write_bytes(b"\xef\xbb\xbf" + (end.join(body) + (end if last else "")).encode())
        assert [text for _, text in good(path)] == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", b"text\tn\nx\t1\n\ny\t2\r\n\r\n"),
        ("a.csv", b"text,n\nx,1\n\ny,2\n\n"),
        ("a.jsonl", b'{"text":"x"}\n\n{"text":"y"}\n \n'),
    ],
)
def test_blank_lines_are_no_rows(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert [text for _, text in good(tmp_path / name)] == ["x", "y"]


def test_utf_16_is_told_as_such(tmp_path: Path) -> None:
    for name in ("a.tsv", "a.csv", "a.jsonl"):
        (tmp_path / name).write_text("text\nx\n", encoding="utf-16")
        with pytest.raises(InputError, match=rf"{name}: it is UTF-16; expected UTF-8"):
            good(tmp_path / name)


def test_csv_fields_may_be_quoted_and_go_over_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('text,n\n"one,\n two ""x""",1\nplain,2\n')
    assert good(path) == [(2, 'one,\n two "x"'), (3, "plain")]


def test_parquet_strings_of_every_kind(tmp_path: Path) -> None:
    kinds = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
    for kind in kinds:
        table = pa.table({"text": pa.array(["one", "two", "one"]).cast(kind)})
        parquet.write_table(table, tmp_path / "a.parquet")
        assert good(tmp_path / "a.parquet") == [(1, "one"), (2, "two"), (3, "one")]


def test_parquet_rows_go_on_counting_over_batches_and_row_groups(tmp_path: Path) -> None:
    count = 2 * readers.BATCH_ROWS + 5
    table = pa.table({"text": [f"sentence {i}" for i in range(1, count + 1)]})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=3000)
    assert good(tmp_path / "a.parquet") == [(i, f"sentence {i}") for i in range(1, count + 1)]


BAD_ROWS: list[tuple[str, bytes, int, str]] = [
    # One bad row between two good ones: name, content, the row, the message.
    ("a.tsv", b"text\tn\nx\t1\n \t2\ny\t3\n", 3, r"column 'text' is empty; expected a sentence"),
    ("a.tsv", b"text\tn\nx\t1\nb\ny\t3\n", 3, r"1 fields, expected 2 as in the header"),
    ("a.tsv", b"text\tn\nx\t1\nb\t2\t3\ny\t3\n", 3, r"3 fields, expected 2 as in the header"),
    ("a.tsv", b"text\nx\ncaf\xe9\ny\n", 3, r"not UTF-8 \(.* at byte 3 of the row\)"),
    ("a.csv", b"text,n\nx,1\n,2\ny,3\n", 3, r"column 'text' is empty"),
    ("a.csv", b"text,n\nx,1\nb\ny,3\n", 3, r"\(line 3\): 1 fields, expected 2"),
    ("a.csv", b'text,n\n"x\nx",1\nb\ny,3\n', 3, r"\(line 4\): 1 fields, expected 2"),  # the row before has two lines
    ("a.csv", b'text,n\nx,1\n"b"c,2\ny,3\n', 3, r"\(line 3\): not CSV \(.*'\"'\)"),  # text behind a closing quote
    ("a.csv", b"text,n\nx,1\ncaf\xe9,2\ny,3\n", 3, r"column 'text' is not UTF-8 \(at character 3\)"),
    ("a.jsonl", b'{"text":"x"}\n{"text":\n{"text":"y"}\n', 2, r"malformed JSON \(.*\); expected one object a line"),
    ("a.jsonl", b'{"text":"x"}\n' + b"[" * 100_000 + b'\n{"text":"y"}\n', 2, r"malformed JSON"),
    ("a.jsonl", b'{"text":"x"}\n"b"\n{"text":"y"}\n', 2, r"a JSON str; expected one object a line"),
    ("a.jsonl", b'{"text":"x"}\n{"t":1,"u":2}\n{"text":"y"}\n', 2, r"no column 'text'; the columns are \['t', 'u'\]"),
    (
        "a.jsonl",
        b'{"text":"x"}\n{"text":7}\n{"text":"y"}\n',
        2,
        r"column 'text' is 7; expected a sentence \(a string\)",
    ),
    ("a.jsonl", b'{"text":"x"}\n{"text":null}\n{"text":"y"}\n', 2, r"column 'text' is None; expected a sentence"),
    ("a.jsonl", b'{"text":"x"}\n{"text":["a"]}\n{"text":"y"}\n', 2, r"column 'text' is \['a'\]; expected a sentence"),
    ("a.jsonl", b'{"text":"x"}\n{"text":"a \\ud800"}\n{"text":"y"}\n', 2, r"column 'text' is not UTF-8"),
    ("a.jsonl", b'{"text":"x"}\n{"text":"\xff"}\n{"text":"y"}\n', 2, r"not UTF-8"),
    (
        "a.jsonl",
        b'{"text":"x"}\n{"text":"a","n":{"n":1},"text":"b"}\n',
        2,
        r"key 'text' is there 2 times; expected each",
    ),
    ("a.txt", b"x\n \ny\n", 2, r"column 'text' is empty; expected a sentence"),
    ("a.txt", b"x\n\xc3\ny\n", 2, r"not UTF-8"),
]


@pytest.mark.parametrize(("name", "content", "row", "message"), BAD_ROWS)
def test_a_bad_row_names_file_and_row(tmp_path: Path, name: str, content: bytes, row: int, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"{path}, row {row}:? .*{message}|{path}, row {row}: {message}"):
        good(path)


def test_an_object_within_another_may_have_the_same_keys(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x", "m": {"text": "y", "n": 1, "n": 2}, "l": [{"k": 1, "k": 1}]}\n')
    assert good(tmp_path / "a.jsonl") == [(1, "x")]


def test_bytes_in_another_column_of_a_csv_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"text,n\nx,\xe9\n")
    assert good(tmp_path / "a.csv") == [(2, "x")]


def test_bad_values_in_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    raw = pa.array([b"x", None, b"caf\xe9", b" ", b"y"], pa.binary())
    text = pa.Array.from_buffers(
        pa.string(), len(raw), raw.buffers()
    )  # not checked to be UTF-8, as in a file by others
    parquet.write_table(pa.table({"text": text}), path)
    values = [value for _, (value,) in read_columns(path, ("text",))]
    assert (values[0], values[4]) == ("x", "y")
    for row, message in ((2, "is None; expected"), (3, "is not UTF-8"), (4, "is empty")):
        with pytest.raises(InputError, match=rf"{path}, row {row}: column 'text' {message}"):
            sentence(path, row, "text", values[row - 1])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.tsv", r"row 1: no column 'absent'; the header is \['n', 'text', 'm'\]"),
        ("a.csv", r"row 1: no column 'absent'; the header is \['n', 'text', 'm'\]"),
        ("a.parquet", r"no column 'absent'; the columns are \['n', 'text'\]"),
    ],
)
def test_an_absent_column_lists_those_there(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"{name}(, |: ){message}"):
        good(write(tmp_path / name, TEXTS), "absent")


def test_a_parquet_column_that_holds_no_strings(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.parquet: column 'n' holds int64; expected strings"):
        good(write(tmp_path / "a.parquet", TEXTS), "n")


@pytest.mark.parametrize("name", ["a.tsv.gz", "a.csv.gz", "a.jsonl.gz", "a.txt.gz", "a.parquet"])
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.98])
def test_a_truncated_file_is_refused_behind_its_last_row(tmp_path: Path, name: str, kept: float) -> None:
    path = write(tmp_path / name, [f"sentence {i * 7919}" for i in range(3000)])
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept)])
    with pytest.raises(InputError, match=rf"{path}(: cannot be read after row \d+: |, row 1: no column 'text')"):
        if not good(path):  # an empty .gz is an empty file
            raise InputError(f"{path}: cannot be read after row 0: nothing")


@pytest.mark.parametrize("name", ["a.tsv.gz", "a.parquet"])
def test_a_file_of_another_format_than_its_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("text\nnot what the name says\n")
    with pytest.raises(InputError, match=rf"{name}: cannot be read after row 0"):
        good(tmp_path / name)


@pytest.mark.parametrize("name", ALL)
def test_a_file_that_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=rf"{name}: cannot be read after row 0"):
        good(tmp_path / name)


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl.gz"])
def test_a_file_without_line_ends_is_not_read_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(readers, "LONGEST_LINE", 2000)
    with pytest.raises(InputError, match=rf"{name}, row \d+: a line of more than 2000 bytes; expected one row a line"):
        good(write(tmp_path / name, TEXTS))


def test_an_open_quote_does_not_swallow_a_csv_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('text\n"open\n' + "more\n" * 10)
    with pytest.raises(InputError, match=r"row 2 \(line 12\): not CSV \(unexpected end of data\)"):
        good(path)


PLACE = (Path("x/y.tsv"), 7, "c")


@pytest.mark.parametrize("value", ["", "four", "3,5", "nan", "inf", "-inf", "1e999", "0x10"])
def test_what_is_no_finite_number_names_file_row_and_value(value: str) -> None:
    with pytest.raises(InputError, match=rf"x/y\.tsv, row 7: column 'c' is '{value}'; expected a number"):
        finite_number(*PLACE, value)


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.txt", "a.tsv.gz"])
def test_lines_that_end_in_carriage_returns_alone_are_one_short_message(tmp_path: Path, name: str) -> None:
    text = "\r".join(["text\tscore", *(f"number {i}\t{i}" for i in range(3000))]).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    with pytest.raises(InputError, match=rf"{name}: its lines end in carriage returns alone") as error:
        good(path)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("line", ['{"text": "' + "long " * 9000 + '"}', ",".join(f"column {i}" for i in range(9000))])
def test_a_file_of_another_format_is_no_long_message(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.tsv").write_text(line + "\n")
    with pytest.raises(InputError, match=r"no column 'text'; the header is") as error:
        good(tmp_path / "a.tsv")
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.parquet"])
def test_two_columns_of_one_name_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "a.parquet":
        parquet.write_table(pa.Table.from_arrays([pa.array(["x"]), pa.array(["y"])], ["text", "text"]), path)
    else:
        mark = "\t" if name == "a.tsv" else ","
        path.write_text(f"text{mark}n{mark}text\nx{mark}1{mark}y\n")
    with pytest.raises(InputError, match=rf"{name}.*2 columns are called 'text'"):
        good(path)


def test_a_field_of_csv_may_be_long(tmp_path: Path) -> None:
    long = "a long text, " * 20_000  # csv's own limit is 131,072
    assert good(write(tmp_path / "a.csv", ["x", long, "y"])) == [(2, "x"), (3, long.strip()), (4, "y")]
