"""What an encoder is evaluated on: the kinds asked for, what is told, what is calibrated on, and the fingerprint."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from samples import make_data, write_tsv

from distilbench.choices import EVERY_TASK
from distilbench.data import sampling as module
from distilbench.data.about import DEMONSTRATION
from distilbench.data.corpus import Corpus
from distilbench.data.evaluation_sets import evaluation_corpus
from distilbench.data.folder import Limits, folder_corpus
from distilbench.errors import InputError

ALL = Limits(None, None, None)
SCORED = ["sentence1", "sentence2", "score"]


def labelled(name: str, count: int) -> list[list[object]]:
    return [[f"{name} sentence {i}", i % 2] for i in range(count)]


def paired(name: str, count: int) -> list[list[object]]:
    return [[f"{name} one {i}", f"{name} two {i}", i % 2] for i in range(count)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with sets of every kind."""
    root = make_data(tmp_path_factory.mktemp("evaluation") / "small")
    write_tsv(root / "sc" / "MR.tsv", ["text", "label"], labelled("mr", 24))
    for split, count in (("train", 24), ("test", 4)):
        write_tsv(root / "sc" / f"TREC.{split}.tsv", ["text", "label"], labelled(f"trec {split}", count))
    for split, count in (("train", 20), ("dev", 6)):
        rows = paired(f"mrpc {split}", count)
        write_tsv(root / "glue" / f"MRPC.{split}.tsv", ["sentence1", "sentence2", "label"], rows)
    return root


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    shutil.copytree(made, tmp_path / "small")
    return tmp_path / "small"


def read(root: Path, kinds: Sequence[str] = EVERY_TASK, limits: Limits = ALL) -> Corpus:
    return evaluation_corpus(root, kinds, limits)


def kinds_of(data: Corpus) -> set[str]:
    sets = {"sts": data.sts, "classification": data.classification, "retrieval": data.retrieval, "pairs": data.probed}
    return {kind for kind, found in sets.items() if found}


def calibration(data: Corpus) -> list[str]:
    return [data.sentences[row] for row in data.train]


def asked(corpus: Corpus) -> set[str]:
    """The sentences that a set asks about."""
    rows = [side for sts in corpus.sts for side in (sts.left_P, sts.right_P)]
    rows += [side for task in corpus.classification for side in task.columns]
    for task in corpus.probed:
        rows += [side for name, s in task.splits.items() if name != "train" for side in (s.left_P, s.right_P)]
    return {corpus.sentences[row] for row in np.concatenate([*rows, *(task.queries for task in corpus.retrieval)])}


def test_all_kinds(folder: Path) -> None:
    data = read(folder)
    assert kinds_of(data) == set(EVERY_TASK) and data.name == "small" and not data.demonstration
    assert sorted((sts.name, sts.split) for sts in data.sts) == [
        ("STS12.MSRpar", "test"),
        ("STS12.OnWN", "test"),
        ("STSB", "dev"),
        ("STSB", "test"),
    ]
    assert [task.name for task in data.classification] == ["MR", "TREC"]
    assert [task.name for task in data.probed] == ["MRPC"]
    assert [(task.name, task.split) for task in data.retrieval] == [("quora", "dev")]
    assert not any(len(part) for part in (data.pairs_P2, data.triplets_T3, data.pair_tasks))


@pytest.mark.parametrize(
    "kinds", [*((kind,) for kind in EVERY_TASK), ("sts", "retrieval"), ("pairs", "classification")]
)
def test_only_the_kinds_asked_for_are_read(folder: Path, kinds: tuple[str, ...]) -> None:
    # A malformed file of another kind is not even opened.
    files = {
        "sts": "sts/STSB.test.tsv",
        "classification": "sc/MR.tsv",
        "retrieval": "quora/corpus.tsv",
        "pairs": "glue/MRPC.dev.tsv",
    }
    for kind in set(EVERY_TASK) - set(kinds):
        (folder / files[kind]).write_text("neither header nor rows\n")
    data = read(folder, kinds)
    assert kinds_of(data) == set(kinds)
    told = "\n".join((*data.found, *data.missing))
    for kind, name in (
        ("sts", "sts/STS12"),
        ("classification", "sc/"),
        ("retrieval", "retrieval"),
        ("pairs", "pair task"),
    ):
        assert (name in told) == (kind in kinds)


def test_missing_sets_are_told(folder: Path) -> None:
    missing = set(read(folder).missing)
    assert {
        "sts/STS13",
        "sts/SICK.test",
        "sc/CR.tsv",
        "sc/SST2.dev.tsv",
        "sts/SICK.train.tsv",
        "quora retrieval, test (queries and qrels)",
        "pair task RTE: glue/RTE.train.tsv",
        "pair task STSB: sts/STSB.train.tsv",
        "pair task MRPC, test (glue/MRPC.test.tsv)",
        # quora/pairs.tsv is there, but with training pairs alone.
        "pair task QQP: quora/pairs.tsv with rows of split dev",
    } <= missing
    assert not {"sc/MR.tsv", "sts/STS12", "quora retrieval, dev (queries and qrels)"} & missing
    shutil.rmtree(folder / "quora")
    missing = set(read(folder).missing)
    assert any(line.startswith("a retrieval set (") for line in missing)
    assert "pair task QQP: quora/pairs.tsv with rows of split train" in missing


def training_pairs(folder: Path) -> set[str]:
    """The questions of the duplicate pairs that a sweep trains on."""
    rows = [line.split("\t") for line in (folder / "quora" / "pairs.tsv").read_text().splitlines()[1:]]
    return {side for one, two, duplicate, split in rows if (duplicate, split) == ("1", "train") for side in (one, two)}


def query_of(folder: Path) -> str:
    data = read(folder, ["retrieval"])
    return data.sentences[data.retrieval[0].queries[4]]


def test_calibration_is_of_training_text_that_codes_are_not_scored_on(folder: Path) -> None:
    path = folder / "unlabeled" / "sentences.tsv"
    before = path.read_text().splitlines()[1:]
    everything = asked(read(folder, ["sts", "retrieval"]))
    leaks = sorted(everything)[::7]
    leaks += [query_of(folder), read(folder, ["sts"]).sentences[0]]
    assert set(leaks) <= everything
    # One sentence of each kind of set that is scored in float32 alone.
    labelled = ["mr sentence 3", "trec test sentence 1", "mrpc dev two 2", "mrpc train two 2"]
    assert set(labelled[:3]) <= asked(read(folder)) - everything
    allowed = [*labelled, *before, before[0], "one more"]
    write_tsv(path, ["text"], [[text] for text in [*leaks, *allowed]])
    data = read(folder)
    expected = {*allowed, *training_pairs(folder)}
    assert set(calibration(data)) == expected and len(calibration(data)) == len(expected) > len(before) + 2
    assert not everything & set(calibration(data))
    assert f"quantisers are calibrated on {len(expected)} sentences of the folder's training text" in data.found
    # A sentence that another kind of set asks about is no question where that kind is not evaluated.
    query = query_of(folder)
    assert query in calibration(read(folder, ["sts"])) and query not in calibration(data)


def test_calibration_is_the_sweeps_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swept = folder_corpus(folder, ALL)
    assert {swept.sentences[row] for row in swept.train} == set(calibration(read(folder)))  # all of them
    monkeypatch.setattr(module, "CALIBRATION", 5)
    expected = {swept.sentences[row] for row in module.calibration_rows(swept.train)}
    assert set(calibration(read(folder))) == expected and len(expected) == 5


@pytest.mark.parametrize("unlabelled", [None, "asked"])
def test_calibration_is_built_in_where_there_is_no_text(folder: Path, tmp_path: Path, unlabelled: str | None) -> None:
    shutil.rmtree(folder / "unlabeled")
    (folder / "quora" / "pairs.tsv").unlink()
    (folder / "quora" / "corpus.tsv").unlink()  # documents are text too
    if unlabelled:
        (folder / "unlabeled").mkdir()
        (folder / "unlabeled" / "all.txt").write_text("\n".join(sorted(asked(read(folder, ["sts"])))[:2]) + "\n")
    data = read(folder)
    built_in = read(DEMONSTRATION, ["sts"])
    assert set(calibration(data)) == set(calibration(built_in))
    assert 1000 < len(calibration(data)) <= module.CALIBRATION
    told = f"quantisers are calibrated on {len(calibration(data)):,} sentences of the demonstration"
    assert told in data.found


def test_built_in_data(tmp_path: Path) -> None:
    data = read(DEMONSTRATION)
    assert kinds_of(data) == set(EVERY_TASK) and data.demonstration
    assert data.missing == ()
    assert not asked(data) & set(calibration(data))
    assert data.fingerprint != read(DEMONSTRATION, ["sts"]).fingerprint


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        (("sts",), r"empty: no set of sts in it; expected e\.g\. sts/STSB\.test\.tsv"),
        (("classification",), r"no set of classification in it; expected e\.g\. sc/MR\.tsv"),
        (("retrieval", "pairs"), r"no set of retrieval or pairs in it; expected e\.g\. quora/pairs\.tsv"),
        (EVERY_TASK, r"no set of sts or classification or retrieval or pairs in it"),
    ],
)
def test_nothing_usable_is_one_error(tmp_path: Path, kinds: tuple[str, ...], message: str) -> None:
    write_tsv(tmp_path / "empty" / "unlabeled" / "sentences.tsv", ["text"], [["a sentence"]])
    with pytest.raises(InputError, match=message):
        read(tmp_path / "empty", kinds)


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) >= 1
    path.write_text(text.replace(old, new, 1))


def test_the_fingerprint_changes_with_what_is_scored(folder: Path) -> None:
    prints = {"": read(folder).fingerprint}
    assert read(folder).fingerprint == prints[""]
    first_gold = (folder / "sts" / "STSB.test.tsv").read_text().splitlines()[1].split("\t")[2]
    changes = {
        "sts/STSB.test.tsv": (f"\t{first_gold}\n", "\t1.234\n"),
        "sc/MR.tsv": ("mr sentence 5\t1", "mr sentence 5\t0"),
        "glue/MRPC.dev.tsv": ("mrpc dev two 1\t1", "mrpc dev two 1\t0"),
        "quora/retrieval/qrels.dev.tsv": ("q7\td7\t1", "q7\td7\t2"),
        "quora/retrieval/queries.dev.tsv": ("how do i", "how does he"),
        "unlabeled/sentences.tsv": ("text\n", "text\nanother sentence to calibrate on\n"),
    }
    for file, (old, new) in changes.items():
        replaced(folder / file, old, new)
        prints[file] = read(folder).fingerprint
    with (folder / "quora" / "corpus.tsv").open("a") as file:
        file.write("d60\ta document that answers nothing\t0\n")
    prints["document"] = read(folder).fingerprint
    assert len(set(prints.values())) == len(prints)


def test_the_digest_of_an_sts_set_is_the_same_wherever_it_is(folder: Path, tmp_path: Path) -> None:
    """So that scores of one set may be compared between folders that differ otherwise."""
    other = make_data(tmp_path / "other", sentences=20)
    for name in ("STS12.MSRpar", "STS12.OnWN", "STSB.dev"):
        shutil.copy(folder / "sts" / f"{name}.tsv", other / "sts")
    rows: list[list[object]] = [["x", "y", 1], ["z", "w", 2]]
    write_tsv(other / "sts" / "STSB.test.tsv", SCORED, rows)
    write_tsv(other / "sts" / "A.tsv", SCORED, rows)  # comes first: the rows of the shared sets are other ones
    one, two = read(folder, ["sts"]), read(other, ["sts"])
    assert one.fingerprint != two.fingerprint
    first, second = one.set_digests, two.set_digests
    assert {*first} == {"STS12/test", "STSB/dev", "STSB/test"} and {*second} == {*first, "A/test"}
    assert [name for name in first if first[name] == second[name]] == ["STS12/test", "STSB/dev"]
    with_searches = read(folder).set_digests
    assert with_searches.items() >= first.items()  # other kinds do not matter
    own = {name: digest for name, digest in with_searches.items() if name not in first}
    assert {*own} == {"retrieval/quora/dev"}
    with (folder / "quora" / "corpus.tsv").open("a") as file:
        file.write("d60\ta document that answers nothing\t0\n")
    assert not {*read(folder).set_digests.values()} & {*own.values()}
    for old, new in (("\n", "\none more\tpair\t2.5\n"), ("more\tpair", "less\tpair"), ("2.5", "2.6")):
        replaced(other / "sts" / "STS12.OnWN.tsv", old, new)
        changed = read(other, ["sts"]).set_digests["STS12/test"]
        assert changed not in (first["STS12/test"], second["STS12/test"])
        second["STS12/test"] = changed


@pytest.mark.parametrize("split", [False, True], ids=["pairs", "pairs of splits"])
def test_searches_are_made_of_pairs_as_a_sweep_makes_them(tmp_path: Path, split: bool) -> None:
    """A folder with pairs alone is searched: every held-out question finds its duplicates."""
    root = tmp_path / "shop"
    rows: list[list[object]] = [[f"why is {i} so", f"{i} is so why", int(i % 5 > 0)] for i in range(60)]
    columns, name = ["question1", "question2", "is_duplicate"], "support"
    if split:
        columns, rows = [*columns, "split"], [[*row, "dev" if i % 3 else "train"] for i, row in enumerate(rows)]
    write_tsv(root / name / "pairs.tsv", columns, rows)
    swept = folder_corpus(root, ALL, select=None)
    data = read(root, ["retrieval"])
    assert [(s.name, s.split) for s in data.retrieval] == [(name, "dev"), (name, "test")]
    for own, of_sweep in zip(data.retrieval, swept.retrieval, strict=True):
        for side in ("queries", "documents"):
            mine, theirs = ([c.sentences[row] for row in getattr(s, side)] for c, s in ((data, own), (swept, of_sweep)))
            assert mine == theirs
        assert [list(rows) for rows in own.relevant] == [list(rows) for rows in of_sweep.relevant]
    assert sum("made of pairs.tsv" in told for told in data.found) == 2
    assert set(calibration(data)) and not set(calibration(data)) & asked(data)
