"""`distilbench report`: one leaderboard of existing runs, or a report built again from its file of records."""

from __future__ import annotations

from pathlib import Path

from distilbench.reporting.page import report_from
from distilbench.settings.commands import ReportSettings
from distilbench.settings.place import check_writable
from distilbench.storage.folder_copy import WITHOUT_STUDENTS, local_runs, written_to
from distilbench.storage.remote import is_uri


def report(settings: ReportSettings) -> str:
    """Write one leaderboard; where it is."""
    if not is_uri(settings.out):
        check_writable("--out", Path(settings.out))
    sources = local_runs(settings.run, WITHOUT_STUDENTS)
    with written_to(settings.out) as (folder, page):
        report_from(sources, folder, title=settings.title)
    return str(page)
