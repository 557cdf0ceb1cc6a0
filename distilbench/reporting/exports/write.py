"""All exports of a report, written into its folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from distilbench.reporting import table
from distilbench.reporting.comparison import Comparison
from distilbench.reporting.exports import mteb_results
from distilbench.reporting.exports.flat import leaderboard_csv, leaderboard_json, write_parquet
from distilbench.reporting.exports.grid import Grid, to_csv, to_latex, to_markdown
from distilbench.reporting.exports.main_columns import leaderboard_grid
from distilbench.reporting.exports.paper_lines import measured_rows, paper_grid
from distilbench.reporting.exports.paper_tables import TABLES
from distilbench.reporting.published import Published, published_rows
from distilbench.storage.files import atomic_path

Kind = Literal["csv", "json", "parquet", "markdown", "latex", "mteb"]
PAPERS = "tables"
"""The folder of the tables in the papers' shapes, below the report's."""
RENDERERS: Mapping[Kind, tuple[str, Callable[[Grid], str]]] = {
    "markdown": (".md", to_markdown),
    "latex": (".tex", to_latex),
    "csv": (".csv", to_csv),
}


class Export(NamedTuple):
    """A file of the report, or its folder of mteb's results; `path` is relative to the report's folder, with "/"."""

    name: str
    path: str
    title: str
    kind: Kind


def write_exports(
    board: table.Leaderboard,
    compared: Comparison,
    folder: Path,
    *,
    published: Sequence[Published] | None = None,
    mteb: bool = False,
) -> tuple[Export, ...]:
    """Write every export of `board` into `folder` (created if missing), each under a temporary name and then renamed.

    A paper's table that no measured row fits is not written, nor is mteb's folder where nothing has a counterpart, or where
    `mteb` does not ask for it (up to 50 models with a file for each task); what an earlier report wrote of them is removed.
    `published` are the papers' rows, None all of them.

    Raises:
        OSError: `folder` cannot be created or written.
        DiskFull: the disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _write_text(folder / "leaderboard.csv", leaderboard_csv(board, compared))
    _write_text(folder / "leaderboard.json", leaderboard_json(board, compared))
    with atomic_path(folder / "leaderboard.parquet") as path:
        write_parquet(board, path, compared)
    grid = leaderboard_grid(board, compared)
    _write_text(folder / "leaderboard.md", to_markdown(grid))
    _write_text(folder / "leaderboard.tex", to_latex(grid))
    exports = [
        Export("leaderboard", "leaderboard.csv", "Leaderboard, all columns", "csv"),
        Export("leaderboard", "leaderboard.json", "Leaderboard, one object per row", "json"),
        Export("leaderboard", "leaderboard.parquet", "Leaderboard, typed columns", "parquet"),
        Export("leaderboard", "leaderboard.md", "Leaderboard, main columns", "markdown"),
        Export("leaderboard", "leaderboard.tex", "Leaderboard, main columns", "latex"),
    ]
    exports += _write_papers(board, folder, published_rows() if published is None else published)
    written = mteb_results.write_mteb(board, folder, mteb_results.MODELS if mteb else 0)
    if written.models:
        part = f": the first {written.models} of {written.of} models" if written.models < written.of else ""
        exports.append(Export("mteb", mteb_results.FOLDER, f"Results in mteb's layout{part}", "mteb"))
    return tuple(exports)


def _write_papers(board: table.Leaderboard, folder: Path, published: Sequence[Published]) -> list[Export]:
    measured, exports = measured_rows(board), []
    for paper_table in TABLES:
        grid = paper_grid(paper_table, measured, published)
        for kind, (suffix, render) in RENDERERS.items():
            name = f"{PAPERS}/{paper_table.key}{suffix}"
            if grid is not None:
                _write_text(folder / name, render(grid))
                exports.append(Export(paper_table.key, name, grid.title, kind))
            elif not (folder / PAPERS).is_symlink():
                (folder / name).unlink(missing_ok=True)
    papers = folder / PAPERS
    if papers.is_dir() and not papers.is_symlink() and not any(papers.iterdir()):
        papers.rmdir()
    return exports


def _write_text(path: Path, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")
