"""All exports of a report, written into its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from distilbench.reporting import table
from distilbench.reporting.comparison import Comparison
from distilbench.reporting.exports.flat import leaderboard_csv, leaderboard_json, write_parquet
from distilbench.reporting.exports.grid import to_latex, to_markdown
from distilbench.reporting.exports.main_columns import leaderboard_grid
from distilbench.storage.files import atomic_path

Kind = Literal["csv", "json", "parquet", "markdown", "latex"]


class Export(NamedTuple):
    """A file of the report; `path` is relative to the report's folder."""

    name: str
    path: str
    title: str
    kind: Kind


def write_exports(board: table.Leaderboard, compared: Comparison, folder: Path) -> tuple[Export, ...]:
    """Write every export of `board` into `folder` (created if missing), each under a temporary name and then renamed."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_text(folder / "leaderboard.csv", leaderboard_csv(board, compared))
    _write_text(folder / "leaderboard.json", leaderboard_json(board, compared))
    with atomic_path(folder / "leaderboard.parquet") as path:
        write_parquet(board, path, compared)
    grid = leaderboard_grid(board, compared)
    _write_text(folder / "leaderboard.md", to_markdown(grid))
    _write_text(folder / "leaderboard.tex", to_latex(grid))
    return (
        Export("leaderboard", "leaderboard.csv", "Leaderboard, all columns", "csv"),
        Export("leaderboard", "leaderboard.json", "Leaderboard, one object per row", "json"),
        Export("leaderboard", "leaderboard.parquet", "Leaderboard, typed columns", "parquet"),
        Export("leaderboard", "leaderboard.md", "Leaderboard, main columns", "markdown"),
        Export("leaderboard", "leaderboard.tex", "Leaderboard, main columns", "latex"),
    )


def _write_text(path: Path, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")
