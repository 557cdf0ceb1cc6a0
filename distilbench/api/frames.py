"""Records and rows as pandas DataFrames with plain column names."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from distilbench.records import TrialRecord

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
