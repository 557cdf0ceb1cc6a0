"""The options of `sweep` alone, and the settings that they become."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from distilbench.commands.options import Shared, one_of, parts
from distilbench.errors import InputError
from distilbench.settings.choices import BUDGETS

SEARCHER_NAMES = ("tpe", "cmaes", "nsga2", "nsga3", "gp", "random", "grid")
STOPPING_NAMES = ("asha", "median", "none")

SPACE_OPTIONS: dict[str, Shared] = {
    "space": (
        Annotated[
            Path | None,
            typer.Option(
                help="A search space, or a folder of METHOD.yaml; default: search_spaces/METHOD.yaml of the working folder, "
                "else the one for --budget."
            ),
        ],
        None,
    ),
    "budget": (
        Annotated[
            str | None,
            typer.Option(
                help="Which of the search spaces that come along: small (minutes, the demonstration), real (ten minutes or "
                "more on two cores) or cluster (hours on GPUs); default: real with --data, else small."
            ),
        ],
        None,
    ),
}
"""Where search spaces are: of `sweep`, `plan` and `prepare`."""

SWEEP_OPTIONS: dict[str, Shared] = {
    "trials": (
        Annotated[int | None, typer.Option(min=1, help="Trials in all; default: the search space's.")],
        None,
    ),
    "time_budget": (
        Annotated[
            str | None,
            typer.Option(help="From start to leaderboard, such as 90s, 30m or 2h: it ends with what it has."),
        ],
        None,
    ),
    "searcher": (
        Annotated[str | None, typer.Option(help=f"{', '.join(SEARCHER_NAMES)}; default: the search space's.")],
        None,
    ),
    "stopping": (
        Annotated[str | None, typer.Option(help="Of trials at rungs: asha, median or none; default: the space's.")],
        None,
    ),
    "objectives": (
        Annotated[str, typer.Option(help="quality alone, or with bytes or latency or both, with commas between.")],
        "quality",
    ),
    "top": (
        Annotated[
            int | None, typer.Option(min=1, help="Trials of each output dimension to confirm; default: the space's.")
        ],
        None,
    ),
    "confirm_seeds": (
        Annotated[int | None, typer.Option(min=1, help="Seeds that confirm each, its own included.")],
        None,
    ),
    "enqueue": (
        Annotated[Path | None, typer.Option(help="A YAML list of settings to try first.")],
        None,
    ),
    "warm_start": (
        Annotated[str | None, typer.Option(help="An earlier sweep's folder, or its URI, to learn from.")],
        None,
    ),
    "lag": (
        Annotated[
            int | None,
            typer.Option(
                min=0,
                help="Trials that may be under way when the next is suggested: up to so many at once, the trials are the "
                "same however many run; 0: from whatever has ended. Default: 8; above 8 at once, twice as many as those.",
            ),
        ],
        None,
    ),
    "study": (
        Annotated[
            str | None,
            typer.Option(
                envvar="DISTILBENCH_STUDY",
                help="Keep the study in this database, such as postgresql+psycopg://user@host/db (no password in it); "
                "default: SQLite in the run's folder.",
            ),
        ],
        None,
    ),
    "extend": (
        Annotated[
            bool,
            typer.Option("--extend", help="Continue a run although its search space, data or metric is another now."),
        ],
        False,
    ),
    "mlflow": (
        Annotated[str | None, typer.Option(help="Log trials to this MLflow tracking URI.")],
        None,
    ),
    "wandb": (
        Annotated[str | None, typer.Option(help="Log trials to this Weights & Biases project.")],
        None,
    ),
}


def space_settings(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of `SpaceSettings` that other commands do not have.

    Raises:
        InputError: there is no such budget.
    """
    budget = given["budget"]
    return {"space": given["space"], "budget": budget and one_of("--budget", budget, BUDGETS)}


def sweep_settings(method: str, given: dict[str, Any]) -> dict[str, Any]:
    """The fields of `SweepSettings` that other commands do not have.

    Raises:
        InputError: an option's value is none of those that it can have.
    """
    from distilbench.progress.clock import seconds
    from distilbench.search.objectives import parse
    from distilbench.search.study_place import database_url
    from distilbench.storage.remote import check_uri, is_uri

    methods = parts(method)
    if not methods:
        raise InputError(f"--method {method!r}: expected a method's name, several with commas between, or all")
    budget = given["time_budget"]
    try:
        time_budget = None if budget is None else seconds(budget)
    except ValueError:
        raise InputError(f"--time-budget {budget}: expected a time such as 90s, 30m, 2h or 1h30m") from None
    checked = {
        "searcher": given["searcher"] and one_of("--searcher", given["searcher"], SEARCHER_NAMES),
        "stopping": given["stopping"] and one_of("--stopping", given["stopping"], STOPPING_NAMES),
    }
    same = ("trials", "top", "confirm_seeds", "enqueue", "lag", "extend", "mlflow", "wandb")
    earlier = given["warm_start"]
    if earlier is not None:
        earlier = check_uri(earlier, "--warm-start") if is_uri(earlier) else str(Path(earlier))
    return {
        **{name: given[name] for name in same},
        **checked,
        "study": given["study"] and database_url(given["study"]),
        "warm_start": earlier,
        "methods": () if methods == ("all",) else tuple(dict.fromkeys(methods)),
        "time_budget": time_budget,
        "objectives": parse(given["objectives"]),
    }
