"""Sentence classification in SentEval's `data` folder, as SentEval reads it; the sets are those of `classification`.

downstream/MR/rt-polarity.{pos,neg}, CR/custrev.{pos,neg}, MPQA/mpqa.{pos,neg}, SUBJ/subj.{objective,subjective}
                                                           a sentence a line, Latin-1; cross-validated
downstream/SST/binary/sentiment-{train,dev,test}           sentence, tab, 0 or 1
downstream/SST/fine/sentiment-{train,dev,test}             0 to 4, blank, sentence
downstream/TREC/{train_5500,TREC_10}.label                 CLASS:subclass, blank, question; Latin-1
downstream/MRPC/msr_paraphrase_{train,test}.txt            Quality, #1 ID, #2 ID, #1 String, #2 String
downstream/SICK/SICK_{train,trial,test_annotated}.txt      pair_ID sentence_A sentence_B relatedness_score entailment_judgment

All but the Latin-1 ones are UTF-8. The formats and the numbers of classes are those of facebookresearch/SentEval's
`senteval/{binary,sst,trec,mrpc,sick}.py`. A line ends at LF alone; `binary.py` also cuts at a form feed or a byte 0x85, which
the files that its script makes do not hold (they come out of `cat -v`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from distilbench.data.classification import WHOLE, Example, Labelled, add_labelled
from distilbench.data.corpus import CorpusBuilder
from distilbench.data.lines import read_lines
from distilbench.data.senteval import task_files, text_of_line
from distilbench.data.tsv import read_tsv, sentence
from distilbench.errors import InputError

FOLDERS = ("MR", "CR", "SUBJ", "MPQA", "SST", "TREC")
"""The folders of `downstream/`; those of MRPC and SICK hold pair tasks too."""

_CLASS_OF_FILE = {".pos": "1", ".neg": "0", ".objective": "1", ".subjective": "0"}
_SST2, _SST5 = ("0", "1"), ("0", "1", "2", "3", "4")
_TREC = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
_MRPC = ("0", "1")
_SICK = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")


class _Format(NamedTuple):
    """The files of each split, how one is read, and what errors call the label."""

    files: Mapping[str, tuple[str, ...]]
    read: Callable[[Path], Iterator[Example]]
    label: str = "label"


def read_senteval_classification(root: Path, builder: CorpusBuilder) -> None:
    """Add every set of `root` that is there as a whole; what is missing of the others is told.

    Raises:
        InputError: a file is malformed or has a label that SentEval does not know (file, row and value are named), or as
            `add_labelled` says.
    """
    for name, form in FORMATS.items():
        absent = [file for files in form.files.values() for file in files if not (root / file).is_file()]
        if absent:
            builder.missing += absent
            continue
        splits = dict[str, Labelled]()
        for split, files in form.files.items():
            paths = tuple(root / file for file in files)
            splits[split] = Labelled(paths, [example for path in paths for example in form.read(path)])
        add_labelled(name, form.label, splits, builder)


def _of_one_class(path: Path) -> Iterator[Example]:
    for row, line in read_lines(path):
        yield Example(path, row, _texts(path, row, line.decode("latin-1")), _CLASS_OF_FILE[path.suffix])


def _sst_binary(path: Path) -> Iterator[Example]:
    for row, line in read_lines(path):
        fields = text_of_line(path, row, line).strip().split("\t")
        if len(fields) != 2:
            raise InputError(f"{path}, row {row}: {len(fields)} fields, expected a sentence and a label, a tab between")
        yield Example(path, row, _texts(path, row, fields[0]), _label(path, row, "label", fields[1], _SST2))


def _sst_fine(path: Path) -> Iterator[Example]:
    for row, line in read_lines(path):
        label, _, text = text_of_line(path, row, line).strip().partition(" ")
        yield Example(path, row, _texts(path, row, text), _label(path, row, "label", label, _SST5))


def _trec(path: Path) -> Iterator[Example]:
    for row, line in read_lines(path):
        label, _, rest = line.decode("latin-1").strip().partition(":")
        coarse = _label(path, row, "label", label, _TREC)
        yield Example(path, row, _texts(path, row, rest.partition(" ")[2]), coarse)


def _mrpc(path: Path) -> Iterator[Example]:
    return _pairs(path, ("#1 String", "#2 String", "Quality"), _MRPC)


def _sick(path: Path) -> Iterator[Example]:
    return _pairs(path, ("sentence_A", "sentence_B", "entailment_judgment"), _SICK)


def _pairs(path: Path, columns: tuple[str, str, str], labels: tuple[str, ...]) -> Iterator[Example]:
    for row, (one, two, label) in read_tsv(path, columns):
        texts = (sentence(path, row, columns[0], one), sentence(path, row, columns[1], two))
        yield Example(path, row, texts, _label(path, row, columns[2], label, labels))


def _texts(path: Path, row: int, text: str) -> tuple[str]:
    return (sentence(path, row, "text", text),)


def _label(path: Path, row: int, column: str, value: str, allowed: tuple[str, ...]) -> str:
    label = value.strip()
    if label not in allowed:
        shown = repr(label if len(label) <= 60 else label[:57] + "...")
        raise InputError(f"{path}, row {row}: column {column!r} is {shown}; expected one of {', '.join(allowed)}")
    return label


def _two_files(stem: str, one: str = "pos", two: str = "neg") -> _Format:
    return _Format({WHOLE: (f"downstream/{stem}.{one}", f"downstream/{stem}.{two}")}, _of_one_class)


def _sst(folder: str, read: Callable[[Path], Iterator[Example]]) -> _Format:
    files = {split: (f"downstream/SST/{folder}/sentiment-{split}",) for split in ("train", "dev", "test")}
    return _Format(files, read)


def _of_task(name: str, read: Callable[[Path], Iterator[Example]], label: str) -> _Format:
    return _Format({split: (file,) for split, file in task_files(name).items()}, read, label)


FORMATS: Mapping[str, _Format] = {
    "MR": _two_files("MR/rt-polarity"),
    "CR": _two_files("CR/custrev"),
    "SUBJ": _two_files("SUBJ/subj", "objective", "subjective"),
    "MPQA": _two_files("MPQA/mpqa"),
    "SST2": _sst("binary", _sst_binary),
    "SST5": _sst("fine", _sst_fine),
    "TREC": _Format(
        {"train": ("downstream/TREC/train_5500.label",), "test": ("downstream/TREC/TREC_10.label",)}, _trec
    ),
    "MRPC": _of_task("MRPC", _mrpc, "Quality"),
    "SICK-E": _of_task("SICK", _sick, "entailment_judgment"),
}
