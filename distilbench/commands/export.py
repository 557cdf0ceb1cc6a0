"""`distilbench export`: one row as a folder that sentence-transformers loads, with its model card and its records.

    distilbench export runs/A runs/B --bytes 128 --to best-128
    distilbench export runs/A --student 'HPD d=128' --seed 1 --to hpd-128 --onnx

A student's kept model is copied; the teacher and the baselines are made from what the run was prepared from.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from distilbench.commands.export_onnx import write_onnx
from distilbench.commands.export_router import write_router
from distilbench.commands.output_folder import OutputFolder
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.onnx_graph import check_packages
from distilbench.encoders.shared_space import SharedSpace
from distilbench.errors import InputError
from distilbench.records import ON_DEMONSTRATION, ScoreRecord, TrialRecord
from distilbench.reporting.best import best_of_runs, best_seed, model_folder, record_owners
from distilbench.reporting.board import Leaderboard, Row, SeedScores, leaderboard
from distilbench.reporting.choice import ServingBudget
from distilbench.reporting.loading import can_be_built, is_nested, load_code, quantiser_folder, run_code
from distilbench.reporting.model_card import CARD, Snippets, hub_base, model_card
from distilbench.reporting.run_facts import Trainings
from distilbench.reporting.runs import read_runs
from distilbench.reporting.serving import below_overlap
from distilbench.storage.files import bound_config, fingerprint, read_json_object, write_json

if TYPE_CHECKING:
    from distilbench.evaluation.sts import Embed
    from distilbench.prepare.prepared import Prepared

MANIFEST = "distilbench-export.json"
"""The file that makes a folder an export of ours: it has the SHA-256 of every other file."""
RECORDS = "record.json"


class Chosen(NamedTuple):
    """One seed of a row, its model's folder (None: it has to be made) and its run's, and what its card is made from."""

    board: Leaderboard
    row: Row
    seed: SeedScores
    model: Path | None
    run: Path
    training: TrialRecord | None


class Exported(NamedTuple):
    """The record of the row that was written, and what the terminal says: what it is, and the Python that loads it."""

    record: ScoreRecord
    text: str


def export(
    runs: Sequence[Path],
    to: Path,
    budget: ServingBudget,
    *,
    student: str | None = None,
    seed: int | None = None,
    onnx: bool = False,
) -> Exported:
    """Write the best row within the budget, or the one called `student`, into the folder `to`.

    Of its seeds it takes `seed`, or the one with the highest dev score. An earlier export in `to` is replaced.

    Raises:
        InputError: there is no such row, its model is not there and cannot be made, `to` holds something else, the disk is
            full, or with `onnx` there is no graph that gives its vectors. Nothing is written then.
    """
    chosen = choose(runs, budget, student, seed)
    output = OutputFolder("--to", to, "export", MANIFEST, chosen.model)
    if onnx:
        check_packages("--onnx")
    output.check()
    with output.written() as folder:
        _write(chosen, folder, onnx=onnx)
        output.write_manifest(folder, record_id=chosen.seed.record.record_id)
    r, warning = chosen.seed.record, below_overlap(chosen.row)
    lines = [
        f"{chosen.row.name}, seed {r.seed}, {r.quantisation}, {r.bytes_per_vector:,} bytes per vector: {to}",
        *([f"Queries are embedded by the student, documents by {r.documents}."] if r.documents else []),
        *([f"Scores are {ON_DEMONSTRATION}."] if r.demonstration else []),
        *([f"Warning: {warning}"] if warning else []),
        "\nTo load it:\n",
        *(f"    {line}" for line in load_code(r, str(to), str(to), cut=False).splitlines()),
        *([f"\n{CARD} says how to run onnx/model.onnx."] if onnx else []),
    ]
    return Exported(r, "\n".join(lines))


def choose(runs: Sequence[Path], budget: ServingBudget, student: str | None, number: int | None) -> Chosen:
    """The row to export: the best within the budget, or the one called so by name, record id or the page's anchor."""
    records, seed = read_runs(runs), None
    if student is None:
        best = best_of_runs(runs, budget, records)
        board, row = best.board, best.row
    else:
        board = leaderboard(records)
        row, seed = _named(board, student)
    if number is not None:
        seed = _of_seed(row, seed, number)
    seed = seed or best_seed(row) or row.seeds[0]
    record, owners = seed.record, record_owners(runs)
    folder = model_folder(record, owners)
    if folder is not None and folder.is_dir():
        EncoderSpec(str(folder.absolute())).folder()  # refuses one without weights
    elif can_be_built(record):
        folder = None
    else:
        gone = f", {folder} is not there" if folder else ""
        raise InputError(
            f"{row.name}, seed {record.seed}: no model of it is kept (record {record.record_id}){gone}; expected a student "
            "that a sweep or a comparison trained, or another --seed"
        )
    return Chosen(board, row, seed, folder, owners[record.run, record.record_id], Trainings(records).of(record))


def _named(board: Leaderboard, name: str) -> tuple[Row, SeedScores | None]:
    """A row by its name, alone or with its code ("HPD d=128, int8"), or by a record's id or anchor, which say the seed."""
    for row in board.rows:
        for seed in row.seeds:
            if name.removeprefix("#") in (seed.record.record_id, seed.anchor):
                return row, seed
    rows = [row for row in board.rows if name in (row.name, f"{row.name}, {row.record.quantisation}")]
    if len(rows) == 1:
        return rows[0], None
    if rows:
        each = ", ".join(f"{row.anchor} ({row.record.quantisation}, run {row.record.run})" for row in rows)
        raise InputError(
            f'--student {name}: {len(rows)} rows are called that; add the code, as in "{rows[0].name}, '
            f'{rows[0].record.quantisation}", or name one by its id: {each}'
        )
    students = sorted({row.name for row in board.rows if row.record.role == "student"})
    listed = ", ".join(map(repr, students[:8])) + (", ..." if len(students) > 8 else "")
    raise InputError(
        f"--student {name}: no such row; expected a row's name, a record id or an anchor of the page "
        f"(the students are {listed or 'none'})"
    )


def _of_seed(row: Row, seed: SeedScores | None, number: int) -> SeedScores:
    # An anchor names the row too: on the page the first seed's is that of the row.
    chosen = next((s for s in row.seeds if s.record.seed == number), None)
    if chosen is None or (seed is not None and seed not in (chosen, row.seeds[0])):
        seeds = ", ".join(str(s.record.seed) for s in ([seed] if chosen and seed else row.seeds))
        raise InputError(f"--seed {number}: {row.name} was trained with seed {seeds}")
    return chosen


def _write(chosen: Chosen, folder: Path, *, onnx: bool) -> None:
    record, name, warning = chosen.seed.record, chosen.row.name, below_overlap(chosen.row)
    if chosen.model is None:
        _build_model(record, name, chosen.run, folder)
    elif record.documents:
        _write_pair(chosen.model, record, name, chosen.run, folder)
    else:
        _copy_model(chosen.model, name, record, folder)
    onnx_input = write_onnx(folder, name) if onnx else None
    seeds = {
        "name": name,
        "record_id": record.record_id,
        "seed": record.seed,
        "scores_are": ON_DEMONSTRATION if record.demonstration else f"on {record.corpus}",
        "not_recommended": warning,
        "records": [json.loads(seed.record.model_dump_json()) for seed in chosen.row.seeds],
    }
    write_json(folder / RECORDS, seeds)
    code = Snippets(
        load_code(record, ".", ".", cut=False),
        run_code(onnx_input) if onnx_input else "",
        base_model=hub_base(chosen.run, record),
    )
    card = model_card(chosen.board, chosen.row, chosen.seed, chosen.training, code)
    (folder / CARD).write_text(card, encoding="utf-8")


def _copy_model(model: Path, name: str, record: ScoreRecord, folder: Path) -> None:
    """Copy a kept model, of its codes the row's alone; a nested one is cut to the row's width."""

    def left_out(place: str, names: list[str]) -> set[str]:
        if Path(place) != model:
            return set()
        # What begins with a dot is half a file of a killed writer; dN has the codes of a nested student's width N.
        return {n for n in names if n.startswith(("quantisation-", ".")) or re.fullmatch(r"d[0-9]+", n)}

    # The content alone: safetensors writes files that only their owner may read.
    shutil.copytree(model, folder, ignore=left_out, copy_function=shutil.copyfile, dirs_exist_ok=True)
    if is_nested(record):  # sentence-transformers reads from its configuration how many numbers the model gives
        path = folder / "config_sentence_transformers.json"
        saved_config: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        write_json(path, {**saved_config, "truncate_dim": record.dim})
    _copy_code(model, name, record, folder)


def _write_pair(model: Path, record: ScoreRecord, name: str, run: Path, folder: Path) -> None:
    from distilbench.trials.scoring import space_folder

    place = space_folder(run, record.model)
    space = SharedSpace.load(place)
    if space is None or record.dim > space.width:
        has = "it is not there" if space is None else f"it has {space.width} dimensions"
        raise InputError(
            f"{place}: the space of {name}: {has}, expected {record.dim} as record {record.record_id} has; "
            "export the row of the student's own documents, or train it again under another --name"
        )
    write_router(model, space, _teacher(record, name, run), record.dim, folder)
    _copy_code(place, name, record, folder)


def _copy_code(kept: Path, name: str, record: ScoreRecord, folder: Path) -> None:
    """Copy the row's code, of those that are kept beside a model or a space."""
    if record.quantisation == "float32":
        return
    for suffix in ("json", "faiss"):
        file = quantiser_folder(kept, record) / f"quantisation-{record.quantisation}.{suffix}"
        if not file.is_file():
            raise InputError(
                f"{file}: the {record.quantisation} quantiser of {name} is not there; export its float32 row, or "
                "train it again under another --name"
            )
        shutil.copyfile(file, folder / file.name)


def _build_model(record: ScoreRecord, name: str, run: Path, folder: Path) -> None:
    """Make the encoder of a row that no model is kept of, and its code, calibrated on the rows that the scored one was."""
    from distilbench.codes import FAISS_PEER
    from distilbench.data.sampling import calibration_rows
    from distilbench.evaluation.faiss_codes import fitted_code
    from distilbench.methods.parts.heads import export_with_head
    from distilbench.trials.rung_training import build_method
    from distilbench.trials.scoring import TEACHER, calibrated_on

    prepared = _prepared(record, name, run)
    try:
        if record.method in (TEACHER, FAISS_PEER):
            embed: Embed = prepared.vectors.take
            export_with_head(prepared.teacher, [], folder)
        else:
            method = build_method(record.method, record.hyperparameters, prepared, record.seed, "cpu")
            embed = method.embed
            method.export(folder)
        if record.quantisation != "float32":
            rows = calibration_rows(prepared.train, calibrated_on(record.hyperparameters, record.method))
            fitted_code(record.quantisation, embed(rows)[:, : record.dim], prepared.store).save(folder)
    except FileNotFoundError as error:
        raise _gone(name, run, f"{error.filename} is not there any more") from None


def _prepared(record: ScoreRecord, name: str, run: Path) -> Prepared:
    from distilbench.prepare.prepared import load_prepared

    place = run / "prepared"
    try:
        prepared = load_prepared(place)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise _gone(name, run, f"{place} cannot be read ({type(error).__name__}: {error})") from None
    if _teacher(record, name, run) and prepared.vectors.width < record.dim:
        actual = f"{place} is of the teacher {prepared.teacher.title} with {prepared.vectors.width} dimensions"
        raise _gone(name, run, f"{actual}, expected at least {record.dim}")
    return prepared


def _teacher(record: ScoreRecord, name: str, run: Path) -> EncoderSpec:
    """The teacher of a row, as the run's preparation names it, if its files are as they were."""
    file = run / "prepared" / "prepared.json"
    try:
        teacher = EncoderSpec(**read_json_object(file, "expected what a run was prepared to")["teacher"])
    except (OSError, LookupError, TypeError) as error:
        raise _gone(name, run, f"{file} cannot be read ({type(error).__name__}: {error})") from None
    if teacher.title != record.teacher:
        raise _gone(name, run, f"{file} is of the teacher {teacher.title}, expected {record.teacher}")
    recorded = None if teacher.vectors else (bound_config(run) or {}).get("teacher_fingerprint")
    if recorded is not None and recorded != fingerprint(teacher.identity()):
        raise _gone(name, run, f"the files of the teacher {teacher.name} have changed since it was scored")
    return teacher


def _gone(name: str, run: Path, what: str) -> InputError:
    return InputError(
        f"{name}: what it is made from is not as it was: {what}; repeat the command of the run {run.name}, or export a "
        "student whose model is kept, with its own documents"
    )
