"""`distilbench report`: one leaderboard of existing runs."""

from __future__ import annotations

from distilbench.cluster.stored_runs import WITHOUT_STUDENTS, local_runs, written_to
from distilbench.reporting.page import write_report
from distilbench.reporting.runs import read_runs, run_folders
from distilbench.reporting.ties import tie_groups
from distilbench.settings.commands import ReportSettings


def report(settings: ReportSettings) -> str:
    """Write one leaderboard of the records of runs; where it is.

    Raises:
        InputError: a run cannot be read.
    """
    runs = local_runs(settings.run, WITHOUT_STUDENTS)
    records, folders = read_runs(runs), run_folders(runs)
    title = settings.title or ", ".join(run.resolve().name for run in runs)
    with written_to(settings.out) as (folder, told):
        write_report(records, folder, title=title, ties=tie_groups(records, folders), folders=folders)
    return str(told)
