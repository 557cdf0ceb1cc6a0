"""SentEval's `data` folder (`--data DIR` with `DIR/downstream/`): its STS sets and pair tasks, as SentEval reads them.

downstream/STS/STS12-en-test/STS.input.SUBSET.txt     two sentences, tab-separated, no header; STS12 to STS16
downstream/STS/STS12-en-test/STS.gs.SUBSET.txt        a score a line, of the same lines; an empty one: the pair is not used
downstream/STS/STSBenchmark/sts-SPLIT.csv             tab-separated, no header: genre file year id score sentence1 sentence2
downstream/SICK/SICK_{train,trial,test_annotated}.txt      pair_ID sentence_A sentence_B relatedness_score ...
downstream/MRPC/msr_paraphrase_{train,test}.txt       Quality, #1 ID, #2 ID, #1 String, #2 String

All are UTF-8 and unquoted. The formats are those that `senteval/{sts,sick,mrpc}.py` of facebookresearch/SentEval read and its
`get_transfer_data.bash` writes. Sentence classification, which an evaluation alone reads: `senteval_classification`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import zip_longest
from pathlib import Path

from distilbench.data.corpus import CorpusBuilder
from distilbench.data.lines import decoded, read_lines
from distilbench.data.pair_tasks import LabelledPair, LabelledPairs, LabelledSplit, labelled_pairs
from distilbench.data.tsv import finite_number, flag, read_tsv, sentence
from distilbench.errors import InputError

SUBSETS: Mapping[str, tuple[str, ...]] = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),  # its fourth, SMT, has a licence that forbids passing it on
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
"""What SentEval evaluates; any further file in these folders is left alone, as there."""

_SCORED: Mapping[str, Mapping[str, str]] = {
    "STSB": {split: f"downstream/STS/STSBenchmark/sts-{split}.csv" for split in ("train", "dev", "test")},
    "SICK": {
        "train": "downstream/SICK/SICK_train.txt",
        "dev": "downstream/SICK/SICK_trial.txt",
        "test": "downstream/SICK/SICK_test_annotated.txt",
    },
}
_LOWEST = {"STSB": 0.0, "SICK": 1.0}  # both scales end at 5
_MRPC = {split: f"downstream/MRPC/msr_paraphrase_{split}.txt" for split in ("train", "test")}
_MRPC_DEV_EVERY = 10
"""MRPC comes without a dev set (SentEval cross-validates): every tenth training pair becomes one."""
TRAINING_EXPECTED = f"{_SCORED['STSB']['train']}, {_SCORED['SICK']['train']}"
TASKS = (*_SCORED, "MRPC")
_READ = ("STS", "SICK", "MRPC")


def is_senteval(root: Path) -> bool:
    """Whether `root` has SentEval's layout."""
    return (root / "downstream").is_dir()


def read_senteval_sts(root: Path, builder: CorpusBuilder, also: Collection[str] = ()) -> None:
    """Add the STS sets, and dev and test sets of STS-B and SICK, named as a data folder's `sts/` names them.

    The other folders of `downstream/` are told, without those in `also`, which are read elsewhere.

    Raises:
        InputError: a file is malformed (file, row and value are named), or has nothing to correlate.
    """
    for group, subsets in SUBSETS.items():
        folder = root / "downstream" / "STS" / f"{group}-en-test"
        name = folder.relative_to(root).as_posix()
        if not folder.is_dir():
            builder.missing.append(name)
            continue
        for subset in subsets:
            files = [folder / f"STS.{kind}.{subset}.txt" for kind in ("input", "gs")]
            absent = [f"{name}/{path.name}" for path in files if not path.is_file()]
            if absent:
                builder.missing += absent
                continue
            pairs, empty = _sts_pairs(*files)
            _add_sts(builder, files[0], group, subset.removeprefix("surprise."), "test", pairs)
            note = f"; {empty} without a gold score skipped" if empty else ""
            builder.found.append(f"{name}/STS.input.{subset}.txt: {len(pairs)} pairs (test){note}")
    for group, splits in _SCORED.items():
        for split in ("dev", "test"):
            path = root / splits[split]
            if not path.is_file():
                builder.missing.append(splits[split])
                continue
            pairs = _scored_pairs(path, group)
            _add_sts(builder, path, group, "", split, pairs)
            builder.found.append(f"{splits[split]}: {len(pairs)} pairs ({split})")
    folders = (p.name for p in (root / "downstream").iterdir() if p.is_dir())
    others = sorted(name for name in folders if name not in _READ and name not in also)
    if others:
        builder.found.append(f"downstream: {', '.join(others)} left alone (no STS set or pair task that is read)")


def senteval_training(root: Path, builder: CorpusBuilder) -> list[str]:
    """The sentences of the train splits of STS-B and SICK, in order and with repetitions.

    Raises:
        InputError: a file is malformed.
    """
    sentences: list[str] = []
    for group, splits in _SCORED.items():
        path = root / splits["train"]
        if not path.is_file():
            builder.missing.append(splits["train"])
            continue
        pairs = _scored_pairs(path, group)
        sentences += [text for one, two, _ in pairs for text in (one, two)]
        builder.found.append(f"{splits['train']}: {2 * len(pairs)} sentences (train)")
    return sentences


def senteval_tasks(root: Path, missing: list[str]) -> list[str]:
    """The pair tasks whose files are all there; the files that the others lack are added to `missing`."""
    names = []
    for name in TASKS:
        absent = [file for file in task_files(name).values() if not (root / file).is_file()]
        if not absent:
            names.append(name)
        missing += [f"pair task {name}: {file}" for file in absent]
    return names


def task_files(name: str) -> Mapping[str, str]:
    """By split, the file of a pair task of `TASKS`."""
    return _MRPC if name == "MRPC" else _SCORED[name]


def read_senteval_task(root: Path, name: str) -> LabelledPairs:
    """The labelled pairs of STSB, SICK or MRPC; MRPC's dev set is every tenth of its training pairs.

    Raises:
        InputError: SentEval has no such pair task, a file of it is absent or malformed, or a split has fewer than two
            different labels.
    """
    if name not in TASKS:
        raise InputError(
            f"--data {root}: SentEval's folder has no pair task {name!r}; expected one of {', '.join(TASKS)}"
        )
    files = task_files(name)
    for split, file in files.items():
        if not (root / file).is_file():
            raise InputError(f"--data {root}: pair task {name} has no {split} set; expected {file}")
    if name != "MRPC":
        splits = {split: LabelledSplit(file, _scored_pairs(root / file, name)) for split, file in files.items()}
        return labelled_pairs(root, name, splits)
    train, test = _mrpc_pairs(root / files["train"]), _mrpc_pairs(root / files["test"])
    first = _MRPC_DEV_EVERY - 1
    dev = train[first::_MRPC_DEV_EVERY]
    del train[first::_MRPC_DEV_EVERY]
    dev_file = f"{files['train']}, every {_MRPC_DEV_EVERY}th pair"
    splits = {
        "train": LabelledSplit(files["train"], train),
        "dev": LabelledSplit(dev_file, dev),
        "test": LabelledSplit(files["test"], test),
    }
    return labelled_pairs(root, name, splits)


def _add_sts(
    builder: CorpusBuilder, path: Path, group: str, subset: str, split: str, pairs: list[LabelledPair]
) -> None:
    distinct = len({score for *_, score in pairs})
    if distinct < 2:
        raise InputError(f"{path}: {len(pairs)} pairs with {distinct} distinct scores; expected at least 2 of each")
    left, right, score = zip(*pairs, strict=True)
    builder.add_sts(group, subset, split, left, right, score)


def _sts_pairs(inputs: Path, gold: Path) -> tuple[list[LabelledPair], int]:
    """The scored pairs, and how many have no score."""
    pairs: list[LabelledPair] = []
    empty = row = 0
    for row, (pair, score) in enumerate(zip_longest(read_lines(inputs), read_lines(gold)), start=1):
        if pair is None or score is None:
            short, long = (inputs, gold) if pair is None else (gold, inputs)
            raise InputError(f"{short}: {row - 1} lines, but {long.name} has more; expected a score line for each pair")
        fields, value = text_of_line(inputs, row, pair[1]).split("\t"), text_of_line(gold, row, score[1])
        # STS16 as published names the two sources after the sentences; SentEval's script cuts them off.
        if len(fields) not in (2, 4):
            raise InputError(f"{inputs}, row {row}: {len(fields)} fields, expected 2 sentences with a tab between")
        if not value.strip():
            empty += 1
            continue
        one, two = sentence(inputs, row, "sentence1", fields[0]), sentence(inputs, row, "sentence2", fields[1])
        pairs.append((one, two, _score(gold, row, "score", value, 0.0)))
    return pairs, empty


def _scored_pairs(path: Path, group: str) -> list[LabelledPair]:
    low = _LOWEST[group]
    if group == "SICK":
        columns = ("sentence_A", "sentence_B", "relatedness_score")
        return [_scored_pair(path, row, columns, fields, low) for row, fields in read_tsv(path, columns)]
    pairs: list[LabelledPair] = []
    for row, line in read_lines(path):
        fields = text_of_line(path, row, line).split("\t")
        if len(fields) < 7:  # the published files go on with sources and licences
            raise InputError(
                f"{path}, row {row}: {len(fields)} fields, expected at least 7 (the last two are sentences)"
            )
        pairs.append(_scored_pair(path, row, ("sentence1", "sentence2", "score"), [*fields[5:7], fields[4]], low))
    return pairs


def _scored_pair(path: Path, row: int, columns: tuple[str, str, str], fields: list[str], low: float) -> LabelledPair:
    one, two = sentence(path, row, columns[0], fields[0]), sentence(path, row, columns[1], fields[1])
    return one, two, _score(path, row, columns[2], fields[2], low)


def _score(path: Path, row: int, column: str, value: str, low: float) -> float:
    score = finite_number(path, row, column, value)
    if not low <= score <= 5:
        raise InputError(f"{path}, row {row}: column {column!r} is {value!r}; expected {low:g} to 5")
    return score


def _mrpc_pairs(path: Path) -> list[LabelledPair]:
    columns = ("Quality", "#1 String", "#2 String")
    return [
        (
            sentence(path, row, columns[1], one),
            sentence(path, row, columns[2], two),
            float(flag(path, row, columns[0], label)),
        )
        for row, (label, one, two) in read_tsv(path, columns)
    ]


def text_of_line(path: Path, row: int, line: bytes) -> str:
    """A line without its end.

    Raises:
        InputError: it is not UTF-8.
    """
    text = decoded(path, row, line)
    if isinstance(text, InputError):
        raise text
    return text
