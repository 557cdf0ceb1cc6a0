"""SentEval's and MS MARCO's files as data folders: what `tools/to_data_folder.py` writes is read as the same sets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from samples import write_tsv

from distilbench.data.classification_sets import read_classification
from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.requirements import Requirements

TOOL = Path(__file__).parents[2] / "tools" / "to_data_folder.py"
STSB = "downstream/STS/STSBenchmark/sts-{}.csv"
TWO_FILES = {
    "MR": ("MR/rt-polarity.pos", "MR/rt-polarity.neg"),
    "CR": ("CR/custrev.pos", "CR/custrev.neg"),
    "SUBJ": ("SUBJ/subj.objective", "SUBJ/subj.subjective"),
    "MPQA": ("MPQA/mpqa.pos", "MPQA/mpqa.neg"),
}
TREC = {"train": "train_5500", "test": "TREC_10"}
SICK = {"train": "train", "dev": "trial", "test": "test_annotated"}
CLASSES = {
    "SST2": ("0", "1"),
    "SST5": ("0", "1", "2", "3", "4"),
    "TREC": ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"),
    "MRPC": ("0", "1"),
    "SICK-E": ("NEUTRAL", "ENTAILMENT", "CONTRADICTION"),
}
Rows = list[tuple[tuple[str, ...], str]]
"""Texts and a label."""


def made_up() -> dict[str, dict[str, Rows]]:
    """Rows of every set, by split; "" is of the sets that are cross-validated, positive rows first, as SentEval has them."""
    sets: dict[str, dict[str, Rows]] = {}
    for name in TWO_FILES:
        sets[name] = {"": [((f"{name} says café {label}.{i}",), label) for label in "10" for i in range(12)]}
    for name, classes in CLASSES.items():
        splits = ("train", "test") if name in ("TREC", "MRPC") else ("train", "dev", "test")
        run = 3 if name == "MRPC" else 1  # so that both labels are among every tenth pair, the dev set of its pair task
        sides = "ab" if name in ("MRPC", "SICK-E") else "a"
        sets[name] = {
            split: [
                (tuple(f"{name} {split} {side}{i} : “x”" for side in sides), classes[i // run % len(classes)])
                for i in range(11 * len(classes) if split == "train" else 2 * len(classes))
            ]
            for split in splits
        }
    sets["TREC"] = {
        s: [((f"trec {s} : é {i}",), label) for i, (_, label) in enumerate(r)] for s, r in sets["TREC"].items()
    }
    return sets


def write(path: Path, lines: list[str], encoding: str = "utf-8", end: str = "\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + end for line in lines).encode(encoding))


def write_senteval(root: Path, sets: dict[str, dict[str, Rows]], end: str = "\n") -> None:
    down = root / "downstream"
    for name, files in TWO_FILES.items():
        for file, label in zip(files, "10", strict=True):
            write(down / file, [texts[0] for texts, own in sets[name][""] if own == label], "latin-1", end)
    for split, rows in sets["SST2"].items():
        # The published files have a blank before the tab.
        write(down / f"SST/binary/sentiment-{split}", [f"{text} \t{label}" for (text,), label in rows], end=end)
    for split, rows in sets["SST5"].items():
        write(down / f"SST/fine/sentiment-{split}", [f"{label} {text}" for (text,), label in rows], end=end)
    for split, rows in sets["TREC"].items():
        lines = [f"{label}:other {text}" for (text,), label in rows]
        write(down / f"TREC/{TREC[split]}.label", lines, "latin-1", end)
    for split, rows in sets["MRPC"].items():
        lines = [f"{label}\t{i}\t{i + 900}\t{one}\t{two}" for i, ((one, two), label) in enumerate(rows)]
        head = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"
        write(down / f"MRPC/msr_paraphrase_{split}.txt", [head, *lines], end=end)
    for split, rows in sets["SICK-E"].items():
        lines = [f"{i}\t{one}\t{two}\t{1 + i % 5}\t{label}" for i, ((one, two), label) in enumerate(rows)]
        head = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
        write(down / f"SICK/SICK_{SICK[split]}.txt", [head, *lines], end=end)


def write_own(root: Path, sets: dict[str, dict[str, Rows]]) -> None:
    for name, splits in sets.items():
        for split, rows in splits.items():
            texts = ["sentence1", "sentence2"] if len(rows[0][0]) == 2 else ["text"]
            file = f"sc/{name}.{split}.tsv" if split else f"sc/{name}.tsv"
            label = "label"
            if name == "SICK-E":
                file, label = f"sts/SICK.{split}.tsv", "entailment"
            write_tsv(root / file, [*texts, label], [[*own, of] for own, of in rows])


def write_sts(root: Path, group: str, subset: str, rows: list[tuple[str, str, str]]) -> None:
    folder = root / "downstream" / "STS" / f"{group}-en-test"
    write(folder / f"STS.input.{subset}.txt", [f"{one}\t{two}" for one, two, _ in rows])
    write(folder / f"STS.gs.{subset}.txt", [score for *_, score in rows])


@pytest.fixture
def senteval(tmp_path: Path) -> Path:
    """SentEval's `data` folder: its classification sets, two STS sets, STS-B."""
    root = tmp_path / "senteval"
    write_senteval(root, made_up())
    write_sts(root, "STS12", "surprise.OnWN", [("a", "b", "2"), ("c", "d", ""), ("", "", ""), ("e", "f", "4.25")])
    write_sts(root, "STS16", "headlines", [("g\th", "source", "1"), ("i\tj", "source", "2")])
    for split in ("train", "dev", "test"):
        rows = [f'genre\tfile\t2012\t{i}\t{i}.5\t{split} a{i}\t"{split} b{i}\tlicence' for i in range(4)]
        write(root / STSB.format(split), rows, end="\r\n")
    return root


def convert(kind: str, source: Path) -> Path:
    out = source.with_name(f"{source.name}-out")
    done = subprocess.run([sys.executable, TOOL, kind, source, out], capture_output=True, text=True)
    if done.returncode:
        raise ValueError(done.stderr)
    return out


def pairs_of(corpus: Corpus, name: str, split: str) -> list[tuple[str, str, float]]:
    [s] = [s for s in corpus.sts if (s.name, s.split) == (name, split)]
    text, columns = corpus.sentences, (s.left_P.tolist(), s.right_P.tolist(), s.score_P.tolist())
    return [(text[one], text[two], score) for one, two, score in zip(*columns, strict=True)]


def test_classification_sets_are_those_of_our_own_layout(tmp_path: Path, senteval: Path) -> None:
    write_own(tmp_path / "own", made_up())
    own, converted = CorpusBuilder("d"), CorpusBuilder("d")
    read_classification(tmp_path / "own", own)
    read_classification(convert("senteval", senteval), converted)
    assert [task.name for task in converted.build().classification] == [*made_up()] and not converted.missing
    assert converted.build().fingerprint == own.build().fingerprint


def test_sts_sets_pair_tasks_and_training_text(senteval: Path) -> None:
    corpus = folder_corpus(convert("senteval", senteval), Limits(), Requirements(pair_tasks=("STSB", "SICK", "MRPC")))
    assert pairs_of(corpus, "STS12.OnWN", "test") == [("a", "b", 2.0), ("e", "f", 4.25)]  # those with a gold score
    assert pairs_of(corpus, "STSB", "dev")[3] == ("dev a3", '"dev b3', 3.5)
    assert {(s.name, s.split) for s in corpus.sts} >= {("STS16.headlines", "test"), ("SICK", "dev"), ("SICK", "test")}
    counts = {t.name: {s: len(p.target_P) for s, p in t.splits.items()} for t in corpus.pair_tasks}
    assert counts["MRPC"] == {"train": 20, "dev": 2, "test": 4} and counts["STSB"] == {"train": 4, "dev": 4, "test": 4}
    dev = corpus.pair_tasks[2].splits["dev"]
    assert [corpus.sentences[row] for row in dev.left_P] == ["MRPC train a9 : “x”", "MRPC train a19 : “x”"]
    trained = {corpus.sentences[row] for row in corpus.train}
    assert {"train a0", "SICK-E train a1 : “x”"} <= trained and not {"dev a0", "a", "MRPC train a9 : “x”"} & trained


def test_ms_marco(tmp_path: Path) -> None:
    root = tmp_path / "marco"
    write(root / "collection.tsv", [f"{i}\tpassage {i}" for i in range(30)])
    write(root / "queries.dev.small.tsv", ["10\tfirst", "11\tsecond"])
    write(root / "queries.dev.tsv", ["12\tnot in the small set"])
    write(root / "qrels.dev.small.tsv", ["10\t0\t3\t1", "11 0 4 1", "11\t0\t5\t2"])
    [dev] = (corpus := folder_corpus(convert("msmarco", root), Limits())).retrieval
    assert (dev.name, dev.split, len(dev.documents)) == ("marco", "dev", 30)
    assert [corpus.sentences[row] for row in dev.queries] == ["first", "second"]
    assert [[corpus.sentences[dev.documents[d]] for d in r] for r in dev.relevant] == [
        ["passage 3"],
        ["passage 4", "passage 5"],
    ]
    (root / "collection.tsv").unlink()
    with pytest.raises(ValueError, match=r"no collection\.tsv"):
        convert("msmarco", root)


def test_trecqa(tmp_path: Path) -> None:
    root = tmp_path / "trec"
    rows = [("who", "0", "a"), ("who", "1", "b"), ("when", "0", "c"), ("where", "1", "b"), ("where", "1", "d")]
    write(root / "trecqa.dev.tsv", ["question\tlabel\tsentence", *("\t".join(row) for row in rows)])
    write(root / "trecqa.train.tsv", ["question\tlabel\tsentence", "what\t1\te"])
    [dev] = (corpus := folder_corpus(convert("trecqa", root), Limits())).retrieval
    documents = [corpus.sentences[row] for row in dev.documents]
    asked = {
        corpus.sentences[row]: {documents[d] for d in of} for row, of in zip(dev.queries, dev.relevant, strict=True)
    }
    assert (dev.name, dev.split, sorted(documents)) == ("trecqa", "dev", ["a", "b", "c", "d", "e"])
    assert asked == {"who": {"b"}, "where": {"b", "d"}}, "when has no answer"
    with pytest.raises(ValueError, match=r"no trecqa\.SPLIT\.tsv"):
        convert("trecqa", tmp_path)
