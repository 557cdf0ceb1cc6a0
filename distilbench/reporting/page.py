"""Records -> a folder with a leaderboard that opens from disk, offline, and the data behind it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from distilbench.records import ScoreRecord, TrialRecord, append_records
from distilbench.reporting import budget, encoder_page, run_facts, table
from distilbench.reporting.differences import Differences, differences
from distilbench.reporting.encoder_page import encoder_file, render_encoder
from distilbench.reporting.formats import set_name
from distilbench.reporting.pages import render, write_assets, write_page
from distilbench.reporting.plots import board_plots
from distilbench.reporting.run_facts import RunFacts
from distilbench.reporting.run_page import render_run
from distilbench.reporting.serving import serving_costs
from distilbench.reporting.ties import NO_TIES, Ties
from distilbench.reporting.ties import notices as tie_notices
from distilbench.reporting.trainings import Trainings
from distilbench.store import atomic_path

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


def write_report(
    records: Sequence[TrialRecord | ScoreRecord],
    folder: Path,
    *,
    title: str,
    notes: Sequence[str] = (),
    ties: Ties = NO_TIES,
    folders: Sequence[Path] = (),
    paired: bool = True,
) -> Path:
    """Write the report of `records` into `folder` (created if missing) and return the path of its index.html.

    Beside the page: a page for each row (`encoders/`) and each run (`runs/`), leaderboard.csv, records.jsonl (every record
    given), and the style, script and Plotly of all pages. Each file is written under a temporary name and renamed, index.html
    last, so a reader never meets half a file; an earlier report there is replaced. `notes` are paragraphs of plain text for
    the head of the page, `ties` what `tie_groups` found, `folders` those of the runs, with their settings, and with the
    predictions that paired differences are of (`paired`; none: both are left out).

    Raises:
        OSError: `folder` cannot be created or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    board = table.leaderboard(records)
    runs = run_facts.run_facts(records, board, folders)
    found = differences(board, folders) if paired else ()
    index = render_page(records, board, title=title, notes=notes, ties=ties, paired=found, runs=runs)
    with atomic_path(folder / "records.jsonl") as path:
        append_records(path, records)
    with atomic_path(folder / "leaderboard.csv") as path:
        path.write_text(leaderboard_csv(board, ties), encoding="utf-8", newline="")
    write_assets(folder)
    _write_pages(records, board, folder, title, ties, runs)
    write_page(folder / "index.html", index)
    return folder / "index.html"


def _write_pages(
    records: Sequence[TrialRecord | ScoreRecord],
    board: table.Leaderboard,
    folder: Path,
    title: str,
    ties: Ties,
    runs: Sequence[RunFacts],
) -> None:
    """The pages of rows and runs; those of an earlier report that has others are removed."""
    trainings = Trainings(records)
    by_run: dict[str, list[TrialRecord | ScoreRecord]] = {}
    for record in records:
        by_run.setdefault(record.run, []).append(record)
    written = set()
    for row in board.rows:
        written.add(folder / encoder_file(row))
        write_page(folder / encoder_file(row), render_encoder(row, board, ties, trainings, title))
    for run in runs:
        written.add(folder / run.file)
        write_page(folder / run.file, render_run(run, by_run[run.run], board, title))
    for pattern in (f"{encoder_page.FOLDER}/r-*.html", f"{run_facts.FOLDER}/s-*.html"):
        for page in folder.glob(pattern):
            if page not in written:
                page.unlink()


def render_page(
    records: Sequence[TrialRecord | ScoreRecord],
    board: table.Leaderboard,
    *,
    title: str,
    notes: Sequence[str] = (),
    ties: Ties = NO_TIES,
    paired: Sequence[Differences] = (),
    runs: Sequence[RunFacts] = (),
) -> str:
    """The HTML of the leaderboard. It names no other host and no other file than its neighbours in the folder."""
    indexes, clusters = table.index_rows(board), table.cluster_rows(board)
    return render(
        "index.html.j2",
        "",
        title=title,
        notes=notes,
        board=board,
        variants=table.VARIANTS,
        groups=_groups(board.columns),
        classes=[_classes(board.columns, place) for place in range(len(board.columns))],
        serving=serving_costs(board),
        ties=ties,
        paired=paired,
        costs=[row for row in board.rows if row.record.cost],
        spaces=[row for row in board.rows if row.record.space],
        highlights=table.highlights(board),
        notices=(*table.notices(board), *tie_notices(ties)),
        demonstrations=table.demonstration_rows(board),
        indexes=indexes,
        index_sets=sorted({set_name(row.cost) for row in indexes}),
        index_threads=sorted({row.cost.threads for row in indexes}),
        index_batches=sorted({row.cost.batch for row in indexes}, key=str),
        budgets=budget.budget_rows(board),
        clusters=clusters,
        cluster_sets=sorted({set_name(row.cost) for row in clusters}),
        cluster_threads=sorted({row.cost.threads for row in clusters}),
        trials=sum(run.trials for run in runs),
        runs=runs,
        dimensions=run_facts.by_dimension(board, runs),
        changes=run_facts.changed(runs),
        newest=max((record.provenance.created_at for record in records), default=""),
        plots=board_plots(board),
    )


def leaderboard_csv(board: table.Leaderboard, ties: Ties = NO_TIES) -> str:
    """The leaderboard as CSV with a header; an empty cell where a value is missing, scores and retention unrounded.

    Scores are means over `NAME:seeds` seeds, `NAME:interval95` is half the width of their 95 % interval; of one seed,
    `NAME:low95` and `NAME:high95` end the bootstrap interval over the set's items. `tie_difference` is
    the difference in test average to the first row of the tie group, `tie_low` and `tie_high` end its interval. What differs
    between the seeds of a row (seed, trial, record_id, ...) is listed in their order, joined by ";". A text that a
    spreadsheet would take for a formula is preceded by an apostrophe.
    """
    header = ["label", "configuration", "role", "method", "dim", "quantisation", "bytes_per_vector", "parameters"]
    header += ["seed", "seeds"]
    scores: list[tuple[str, table.Variant]] = []
    for column in board.columns:
        for variant in table.VARIANTS if column.by_variant and board.has_wmean else table.VARIANTS[:1]:
            name = column.key if not column.by_variant else f"{column.key}:{variant}"
            header += [
                name,
                *(f"{name}:{what}" for what in ("retention_percent", "interval95", "seeds", "low95", "high95")),
            ]
            scores.append((column.key, variant))
    header += ["pareto", "best_in_dim", "chosen_on_dev", "tie_group", "tie_difference", "tie_low", "tie_high"]
    header += ["teacher", "start", "corpus", "corpus_fingerprint", "demonstration"]
    header += ["run", "trial", "record_id", "commit", "created_at", "model"]

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([_csv_text(name) for name in header])
    for row in board.rows:
        r, records = row.record, [seed.record for seed in row.seeds]
        line: list[Any] = [r.label, r.configuration, r.role, r.method, r.dim, r.quantisation, r.bytes_per_vector]
        line += [r.parameters, _joined(x.seed for x in records), len(records)]
        for key, variant in scores:
            line += board.cell(row, key, variant)
        line += [row.pareto["all"], row.best_in_dim["all"], row.chosen]
        place = ties.rows.get(row.anchor)
        t = place.tie if place else None
        line += [t.group, t.difference, t.low, t.high] if t else [""] * 4
        line += [r.teacher, r.start, r.corpus, r.corpus_fingerprint]
        line += [r.demonstration, r.run, _joined(x.trial for x in records), _joined(x.record_id for x in records)]
        line += [_joined(x.provenance.commit for x in records), _joined(x.provenance.created_at for x in records)]
        line += [_joined(x.model for x in records)]
        writer.writerow([_csv_text(cell) if isinstance(cell, str) else cell for cell in line])
    return out.getvalue()


def _classes(columns: Sequence[table.Column], place: int) -> Markup:
    """The class attribute of a column's cells; nothing where they need none."""
    column = columns[place]
    first = place == 0 or columns[place - 1].group != column.group
    names = [name for name, own in (("average", place == 0), ("edge", first), ("dev", column.dev)) if own]
    return Markup(f' class="{" ".join(names)}"') if names else Markup("")


def _groups(columns: Sequence[table.Column]) -> list[tuple[str, int]]:
    """Neighbouring columns of one group: its title and how many they are."""
    groups: list[tuple[str, int]] = []
    for column in columns:
        if groups and groups[-1][0] == column.group:
            groups[-1] = (column.group, groups[-1][1] + 1)
        else:
            groups.append((column.group, 1))
    return groups


def _joined(values: Iterable[object]) -> str:
    """One value per seed; nothing at all where no seed has one."""
    texts = ["" if value is None else str(value) for value in values]
    return ";".join(texts) if any(texts) else ""


def _csv_text(text: str) -> str:
    return "'" + text if text.startswith(_FORMULA_STARTS) else text
