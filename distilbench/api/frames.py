"""Records and rows as pandas DataFrames with plain column names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from distilbench.records import TrialRecord
from distilbench.reporting.retrieval import mean_mrr10
from distilbench.reporting.serving import Serving, serving_costs
from distilbench.reporting.table import AVERAGE, DEV, TEST, Leaderboard, Row

if TYPE_CHECKING:
    import pandas as pd

PARAMETER = "param_"
"""Before the name of a hyper-parameter that is called as another column is."""


def trial_frame(records: Iterable[TrialRecord]) -> pd.DataFrame:
    """A row for each trial and each training that confirms one, in the order of the records; hyper-parameters last.

    `dev` and `dev_pca` are x 100, of the student and of PCA with as many dimensions or bytes. `seconds` are those of the
    training. A sweep with several objectives has a column for each: `objective_bytes`.
    """
    import pandas as pd

    return pd.DataFrame([_trial(record) for record in records])


def _trial(record: TrialRecord) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "run": record.run,
        "method": record.method,
        "trial": record.number,
        "seed": record.seed,
        "confirms": record.confirms,
        "state": record.state,
        "reason": record.reason,
        "dim": record.dim,
        "bytes": record.group.bytes,
        "objective": record.objective,
        "dev": record.dev,
        "dev_pca": record.dev_pca,
        "steps": record.rungs[-1].step if record.rungs else 0,
        "seconds": math.fsum(rung.metrics.get("rung_seconds") or 0.0 for rung in record.rungs),
        **{f"objective_{name}": value for name, value in record.values.items()},
    }
    return columns | {PARAMETER * (name in columns) + name: value for name, value in record.params.items()}


def score_frame(board: Leaderboard) -> pd.DataFrame:
    """A row for each encoder and code of the leaderboard, in its order: the teacher, then by test score.

    Scores are x 100, means over `seeds` seeds. `test` is the test score, `interval` half the width of its 95 % interval
    over seeds, `kept_percent` what it is of the teacher's. `mrr10` is the mean over the retrieval sets. Then every score of
    every set, such as `sts_STS12` and `mrr10_quora`. `id` names the row to `student` and to `distilbench export`.
    """
    import pandas as pd

    costs = serving_costs(board).rows
    return pd.DataFrame([_score(board, row, costs[row.anchor]) for row in board.rows])


def _score(board: Leaderboard, row: Row, cost: Serving) -> dict[str, Any]:
    record, test = row.record, board.cell(row, AVERAGE)
    columns: dict[str, Any] = {
        "id": row.anchor,
        "name": row.name,
        "role": record.role,
        "method": record.method,
        "dim": record.dim,
        "code": record.quantisation,
        "bytes": record.bytes_per_vector,
        "parameters": record.parameters,
        "seeds": len(row.seeds),
        "dev": board.cell(row, DEV).value,
        "test": test.value,
        "interval": test.interval,
        "kept_percent": test.retention,
        "mrr10": mean_mrr10(row),
        "ms_per_1000_queries": cost.ms_per_1000_queries.value,
        "index_bytes": cost.index_bytes.value,
        "sentences_per_second": cost.sentences_per_s.value,
        "front": row.pareto["all"],
        "run": record.run,
        "trial": record.trial,
        "teacher": record.teacher,
        "corpus": record.corpus,
        "demonstration": record.demonstration,
    }
    sets = zip(board.columns, row.values["all"], strict=True)
    return columns | {_plain(c.key): cell.value for c, cell in sets if c.key not in (AVERAGE, TEST, DEV)}


def _plain(key: str) -> str:
    """A column's key as a name that Python can write after a dot, where the set's name allows it."""
    return re.sub(r"\W+", "_", key.replace("@", ""))
