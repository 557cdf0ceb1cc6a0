"""TSV files: what is read, and that every defect names file, row and value."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from distilbench.data.tsv import finite_number, flag, read_tsv, sentence
from distilbench.errors import InputError


def test_rows_are_numbered_from_the_header_and_columns_come_in_the_order_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("one\ttwo\tthree\n1\t2\t3\n4\t5\t6\n")
    assert list(read_tsv(path, ("three", "one"))) == [(2, ["3", "1"]), (3, ["6", "4"])]


@pytest.mark.parametrize(
    "content",
    [
        b"text\nGr\xc3\xbc\xc3\x9fe\n",
        b"text\nGr\xc3\xbc\xc3\x9fe",  # the last line is not ended
        b"\xef\xbb\xbftext\nGr\xc3\xbc\xc3\x9fe\n",  # a byte order mark, as spreadsheets write it
        b"text\r\nGr\xc3\xbc\xc3\x9fe\r\n",  # Windows line ends
    ],
)
@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_encodings_of_the_same_row(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert list(read_tsv(path, ("text",))) == [(2, ["Grüße"])]


def test_quotes_and_unicode_line_breaks_are_ordinary_characters(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text('text\n"an open quote\nsplit\u2028no\x0cway\n', encoding="utf-8")
    assert [fields for _, fields in read_tsv(path, ("text",))] == [['"an open quote'], ["split\u2028no\x0cway"]]


def test_a_file_with_a_header_alone_has_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("text\n")
    assert list(read_tsv(path, ("text",))) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"row 1: no column 'a'"),
        (b"a\tc\n1\t2\n", r"row 1: no column 'b'; the header is \['a', 'c'\]"),
        (b"a\tb\n1\t2\n1\n", r"row 3: 1 fields, expected 2"),
        (b"a\tb\n1\t2\t3\n", r"row 2: 3 fields, expected 2"),
        (b"a\tb\n1\t2\n\n3\t4\n", r"row 3: 1 fields"),  # an empty line in the middle
        (b"a\tb\n1\t2\n1\tcaf\xe9\n", r"row 3: not UTF-8 .* at byte 5"),
        (b"a\tb\xe9\n", r"row 1: not UTF-8"),
    ],
)
def test_a_malformed_file_names_file_and_row(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.tsv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"bad\.tsv, {message}"):
        list(read_tsv(path, ("a", "b")))


def _not_gzip(whole: bytes) -> bytes:
    return b"text\nplain text\n"


def _truncated(whole: bytes) -> bytes:
    return whole[: len(whole) // 2]


def _flipped(whole: bytes) -> bytes:
    return whole[:10] + b"\xff" + whole[11:]  # the first byte of the compressed data: a block type that does not exist


def _wrong_checksum(whole: bytes) -> bytes:
    return whole[:-8] + b"\0\0\0\0" + whole[-4:]


@pytest.mark.parametrize("damage", [_not_gzip, _truncated, _flipped, _wrong_checksum])
def test_a_damaged_gzip_file_is_bad_input(tmp_path: Path, damage: object) -> None:
    path = tmp_path / "bad.tsv.gz"
    whole = gzip.compress(b"text\n" + b"".join(b"sentence number %d\n" % (i * 7919) for i in range(500)))
    path.write_bytes(damage(whole))  # type: ignore[operator]
    with pytest.raises(InputError, match=r"bad\.tsv\.gz"):
        list(read_tsv(path, ("text",)))


@pytest.mark.parametrize("name", ["absent.tsv", "absent.tsv.gz", "folder.tsv"])
def test_a_file_that_cannot_be_opened_is_bad_input(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.tsv").mkdir()
    with pytest.raises(InputError, match=name):
        list(read_tsv(tmp_path / name, ("text",)))


PLACE = (Path("x/y.tsv"), 7, "c")


def test_sentences_lose_surrounding_blanks() -> None:
    assert sentence(*PLACE, "  a  b \u00a0") == "a  b"


@pytest.mark.parametrize("value", ["", " ", "\u3000\u00a0"])  # the last: blanks that are not ASCII
def test_an_empty_sentence_names_file_row_and_column(value: str) -> None:
    with pytest.raises(InputError, match=r"x/y\.tsv, row 7: column 'c' is empty"):
        sentence(*PLACE, value)


@pytest.mark.parametrize(("value", "wanted"), [("3", 3.0), ("-0.25", -0.25), ("1e-3", 0.001), (" 4.5 ", 4.5)])
def test_numbers(value: str, wanted: float) -> None:
    assert finite_number(*PLACE, value) == wanted


@pytest.mark.parametrize("value", ["", "four", "3,5", "nan", "inf", "-inf", "1e999", "0x10"])
def test_what_is_no_finite_number_names_file_row_and_value(value: str) -> None:
    with pytest.raises(InputError, match=rf"x/y\.tsv, row 7: column 'c' is '{value}'; expected a number"):
        finite_number(*PLACE, value)


def test_flags() -> None:
    assert flag(*PLACE, "1") is True
    assert flag(*PLACE, "0") is False


@pytest.mark.parametrize("value", ["", "2", "true", "1.0", " 1"])
def test_what_is_no_flag_names_file_row_and_value(value: str) -> None:
    with pytest.raises(InputError, match=rf"x/y\.tsv, row 7: column 'c' is '{value}'; expected 0 or 1"):
        flag(*PLACE, value)
