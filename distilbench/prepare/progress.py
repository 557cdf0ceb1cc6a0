"""How far a stage of the preparation is: rich's bar in the terminal, lines in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import rich
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LINE_EVERY_S = 30
"""Between two lines where there is no terminal to draw a bar in."""


@contextmanager
def progress(label: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Shows `label` at work on `total` things called `unit` ("sentences"); call what it gives with how many more are done.

    The rate is that since the first report, which also waited for workers to start.
    """
    console, last_line_at = rich.get_console(), time.monotonic()
    drawn = not console.is_jupyter or find_spec("ipywidgets") is not None  # what a notebook draws a bar with
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, disable=not drawn) as bar:
        task_id = bar.add_task(label, total=total, rate="")
        (task,) = bar.tasks

        def advance(count: int) -> None:
            nonlocal last_line_at
            bar.update(task_id, advance=count)
            speed = task.finished_speed or task.speed or task.completed / max(task.elapsed or 0.0, 1e-9)
            left = (total - task.completed) / speed if speed else 0.0
            rate = f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}"  # of what takes seconds each, two digits
            bar.update(task_id, rate=f"{rate} {unit}/s")
            in_place = drawn and (console.is_terminal or console.is_jupyter)
            if not in_place and time.monotonic() - last_line_at > LINE_EVERY_S:
                last_line_at = time.monotonic()
                done = f"{label}: {task.completed:,} of {total:,} {unit}"
                bar.console.print(f"{done}, {rate}/s, {left:,.0f} s left", markup=False)

        yield advance
    if not drawn:
        console.print(f"{label}: {task.completed:,} of {total:,} {unit}", markup=False)
