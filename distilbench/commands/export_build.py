"""The model of a row that a run keeps none of: the teacher, or a layer on it that is fitted at once (PCA, random projection).

It is made from what the run was prepared from, and its quantiser is calibrated on the same training rows as the scored one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from distilbench.errors import InputError
from distilbench.records import ScoreRecord
from distilbench.storage.files import bound_config, fingerprint

if TYPE_CHECKING:
    from distilbench.evaluation.sts import Embed
    from distilbench.prepare.prepared import Prepared


def build_model(record: ScoreRecord, name: str, run: Path, folder: Path) -> None:
    """Write the row's encoder into `folder`, as sentence-transformers loads it, and its quantiser where it is coded.

    Raises:
        InputError: the run's `prepared` folder, or the teacher or the embeddings that it names, are gone or are others now.
    """
    from distilbench.codes import FAISS_PEER
    from distilbench.data.calibration import calibration_rows
    from distilbench.evaluation.faiss_codes import Code
    from distilbench.methods.parts.heads import export_with_head
    from distilbench.trials.rung_training import build_method
    from distilbench.trials.scoring import TEACHER, calibrated_on

    prepared = _prepared(record, name, run)
    try:
        if record.method in (TEACHER, FAISS_PEER):
            embed: Embed = prepared.vectors.take
            export_with_head(prepared.teacher, [], folder, unit_norm=False)
        else:
            method = build_method(record.method, record.hyperparameters, prepared, record.seed, "cpu")
            embed = method.embed
            method.export(folder)
        if record.quantisation != "float32":
            rows = calibration_rows(prepared.train, calibrated_on(record.hyperparameters, record.method))
            Code.calibrate(record.quantisation, embed(rows)[:, : record.dim]).save(folder)
    except FileNotFoundError as error:
        raise _gone(name, run, f"{error.filename} is not there any more") from None


def _prepared(record: ScoreRecord, name: str, run: Path) -> Prepared:
    from distilbench.prepare.prepared import load_prepared

    place = run / "prepared"
    try:
        prepared = load_prepared(place)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise _gone(name, run, f"{place} cannot be read ({type(error).__name__}: {error})") from None
    if prepared.teacher.title != record.teacher or prepared.vectors.width < record.dim:
        actual = f"{place} is of the teacher {prepared.teacher.title} with {prepared.vectors.width} dimensions"
        raise _gone(name, run, f"{actual}, expected {record.teacher} with at least {record.dim}")
    recorded = (bound_config(run) or {}).get("teacher_fingerprint")
    if recorded is not None and recorded != fingerprint(prepared.teacher.identity()):
        raise _gone(name, run, f"the files of the teacher {prepared.teacher.name} have changed since it was scored")
    return prepared


def _gone(name: str, run: Path, what: str) -> InputError:
    return InputError(
        f"{name}: no model of it is kept, and what it is made from is not as it was: {what}; repeat the command of the run "
        f"{run.name}, or export a student whose model is kept"
    )
