"""Records -> a folder with a leaderboard page that opens from disk, offline, and the data behind it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import plotly.graph_objects as go
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from distilbench.records import ClusterCost, IndexCost, ScoreRecord, TrialRecord, append_records
from distilbench.reporting import budget, figures, front, table
from distilbench.reporting.covariance import compute_covariances, draw_covariances
from distilbench.reporting.differences import Differences, differences
from distilbench.reporting.exports.flat import leaderboard_csv
from distilbench.reporting.ties import NO_TIES, Ties
from distilbench.reporting.ties import notices as tie_notices
from distilbench.store import atomic_path

PLOTLY_FILE = "plotly.min.js"
MAX_TRIALS = 300
"""Trials listed in the page; records.jsonl has them all."""

_TEMPLATES = Path(__file__).parent / "templates"


class _Plot(NamedTuple):
    """A figure's place in the page: `themes` holds the Plotly JSON of each theme."""

    name: str
    title: str
    caption: str
    themes: Markup


def write_report(
    records: Sequence[TrialRecord | ScoreRecord],
    folder: Path,
    *,
    title: str,
    notes: Sequence[str] = (),
    ties: Ties = NO_TIES,
    folders: Sequence[Path] = (),
) -> Path:
    """Write the report of `records` into `folder` (created if missing) and return the path of its index.html.

    Beside the page: leaderboard.csv, records.jsonl (every record given) and plotly.min.js. Each file is written under
    a temporary name and renamed, index.html last, so a reader never meets half a file; an earlier report there is
    replaced. `notes` are paragraphs of plain text for the head of the page, `ties` what `tie_groups` found, `folders`
    those of the runs, with the predictions that paired differences are of (none: left out).

    Raises:
        OSError: `folder` cannot be created or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    board = table.leaderboard(records)
    page = render_page(records, board, title=title, notes=notes, ties=ties, paired=differences(board, folders))
    with atomic_path(folder / PLOTLY_FILE) as path:
        path.write_text(get_plotlyjs(), encoding="utf-8")
    with atomic_path(folder / "records.jsonl") as path:
        append_records(path, records)
    with atomic_path(folder / "leaderboard.csv") as path:
        path.write_text(leaderboard_csv(board, ties), encoding="utf-8", newline="")
    index = folder / "index.html"
    with atomic_path(index) as path:
        path.write_text(page, encoding="utf-8")
    return index


def render_page(
    records: Sequence[TrialRecord | ScoreRecord],
    board: table.Leaderboard,
    *,
    title: str,
    notes: Sequence[str] = (),
    ties: Ties = NO_TIES,
    paired: Sequence[Differences] = (),
) -> str:
    """The HTML of the page. It names no other host and no other file than its neighbours in the folder."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        short=_short,
        signed=_signed,
        millions=_millions,
        binary=_binary,
        value=_value,
        python=_python,
        day=_day,
        shown=table.finite,
    )
    environment.filters.update(last_metric=table.last_metric, set_name=_set_name, column_name=_column_name)
    environment.filters.update(index_setting=_index_setting)
    script = (_TEMPLATES / "leaderboard.js").read_text("utf-8")
    trials = table.trial_table(records, MAX_TRIALS)
    indexes, clusters = table.index_rows(board), table.cluster_rows(board)
    return environment.get_template("leaderboard.html.j2").render(
        title=title,
        notes=notes,
        board=board,
        variants=table.VARIANTS,
        groups=_groups(board.columns),
        ties=ties,
        paired=paired,
        costs=[row for row in board.rows if row.record.cost],
        spaces=[row for row in board.rows if row.record.space],
        highlights=table.highlights(board),
        notices=(*table.notices(board), *tie_notices(ties)),
        demonstrations=table.demonstration_rows(board),
        indexes=indexes,
        index_sets=sorted({_set_name(row.cost) for row in indexes}),
        index_threads=sorted({row.cost.threads for row in indexes}),
        index_batches=sorted({row.cost.batch for row in indexes}, key=str),
        budgets=budget.budget_rows(board),
        clusters=clusters,
        cluster_sets=sorted({_set_name(row.cost) for row in clusters}),
        cluster_threads=sorted({row.cost.threads for row in clusters}),
        diagnostics=table.DIAGNOSTICS,
        trials=trials,
        newest=max((record.provenance.created_at for record in records), default=""),
        plots=_plots(records, board),
        plotly_file=PLOTLY_FILE,
        style=Markup((_TEMPLATES / "leaderboard.css").read_text("utf-8")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _plots(records: Sequence[TrialRecord | ScoreRecord], board: table.Leaderboard) -> dict[str, _Plot]:
    """The figures that have something to show, by name."""
    plots = {}
    quality = figures.compute_quality_bytes(board)
    names = ", ".join(quality.sets)
    if quality.points:
        omitted = f" Rows without that average, not drawn: {quality.omitted}." if quality.omitted else ""
        bars = any(point.interval is not None for point in quality.points)
        spread = " Bars are 95 % intervals over seeds." if bars else ""
        plots["bytes"] = _Plot(
            "bytes",
            "Quality against size",
            f"Mean Spearman x 100 on the test sets {names}, against bytes per vector. The dotted line joins the "
            f"encoders that no other one beats in both.{spread}{omitted}",
            _themes(lambda palette: figures.draw_quality_bytes(quality, palette)),
        )
    by_dim = figures.compute_quality_dim(board)
    if by_dim.methods:
        plots["dim"] = _Plot(
            "dim",
            "Quality against dimension",
            f"The same average, by method{' and quantisation' if board.quantised else ''}. A line passes "
            "through the encoder with the best dev score of each dimension.",
            _themes(lambda palette: figures.draw_quality_dim(by_dim, palette)),
        )
    learning = figures.compute_learning(records)
    if any(point.objective is not None for run in learning.runs for point in run.points):
        drawn, total = sum(run.drawn for run in learning.runs), sum(run.total for run in learning.runs)
        part = f" {drawn:,} of {total:,} trials are drawn." if drawn < total else ""
        plots["learning"] = _Plot(
            "learning",
            "What the search spent",
            "Best dev objective so far against the optimiser steps of all trials up to it, pruned and failed ones "
            f"included.{part}",
            _themes(lambda palette: figures.draw_learning(learning, palette)),
        )
    found = front.compute_front(records)
    if found.runs:
        caption = front.front_caption(found)
        drawing = _themes(lambda palette: front.draw_front(found, palette))
        plots["front"] = _Plot("front", "The front of the search", caption, drawing)
    covariances = compute_covariances(board)
    if covariances.names:
        more = f" {covariances.omitted} more are not drawn." if covariances.omitted else ""
        plots["covariance"] = _Plot(
            "covariance",
            "Covariance of the first 16 dimensions",
            f"Each dimension scaled to variance 1: what is off the diagonal is said twice.{more}",
            _themes(lambda palette: draw_covariances(covariances, palette)),
        )
    volume = front.compute_volume(records)
    if volume.runs:
        caption = front.volume_caption(volume)
        drawing = _themes(lambda palette: front.draw_volume(volume, palette))
        plots["volume"] = _Plot("volume", "Hypervolume of the search", caption, drawing)
    return plots


def _themes(draw: Callable[[figures.Palette], go.Figure]) -> Markup:
    """JSON of both themes for a script element: to_json writes <, > and / as escapes, so no text can close it."""
    light, dark = (str(draw(palette).to_json()) for palette in (figures.LIGHT, figures.DARK))
    return Markup(f'{{"light":{light},"dark":{dark}}}')


def _groups(columns: Sequence[table.Column]) -> list[tuple[str, int]]:
    """Neighbouring columns of one group: its title and how many they are."""
    groups: list[tuple[str, int]] = []
    for column in columns:
        if groups and groups[-1][0] == column.group:
            groups[-1] = (column.group, groups[-1][1] + 1)
        else:
            groups.append((column.group, 1))
    return groups


def _set_name(cost: IndexCost | ClusterCost) -> str:
    return cost.set if cost.split == "test" else f"{cost.set}, {cost.split}"


def _column_name(column: str) -> str:
    """A column of paired differences as a heading."""
    if column == table.AVERAGE:
        return "STS average"
    task, name, metric = column.rsplit("/", 2) if column.count("/") == 2 else (column, "", "")
    if task in ("sts", "classification"):
        return name
    return f"{name}, {table.TASKS[task][1].get(metric, metric)}" if task in table.TASKS else column


def _index_setting(cost: IndexCost) -> str:
    lists = (
        [f"nlist {cost.nlist:,}, nprobe {cost.nprobe:,}"] if cost.nlist is not None and cost.nprobe is not None else []
    )
    own = [cost.setting] if cost.setting else []
    return ", ".join([*lists, *own, *(["GPU"] if cost.device == "cuda" else [])])


def _short(number: float) -> str:
    """A time or another measure with three significant digits, never in exponent form."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def _signed(difference: float) -> str:
    """A difference of scores, two decimals; one that rounds to 0 has no sign."""
    return f"{difference:+.2f}" if round(difference, 2) else "0.00"


def _millions(count: int) -> str:
    if count >= 1_000_000:
        return f"{count / 1e6:.1f} M"
    return f"{count / 1e3:.1f} k" if count >= 1000 else str(count)


def _binary(size: int) -> str:
    """Bytes as a person reads them, in powers of 1,000."""
    amount = float(size)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}" if unit != "B" else f"{size} B"
        amount /= 1000
    return f"{amount:,.3g} GB"


def _value(value: Any) -> str:
    """A hyper-parameter: numbers short but whole, anything nested as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.6g}"
    return json.dumps(value, ensure_ascii=False, default=str)


def _python(text: str) -> str:
    """`text` as a Python string literal: every escape that JSON writes is one in Python too."""
    return json.dumps(text, ensure_ascii=False)


def _day(timestamp: str) -> str:
    return timestamp[:16].replace("T", " ")
