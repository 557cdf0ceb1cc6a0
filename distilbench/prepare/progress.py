"""How far a stage of the preparation is: a bar in the terminal, lines in a log, gauges for Ray's dashboard."""

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

    The rate is that since the first report, which also waited for workers to start. Where Ray runs, the gauges
    `distilbench_prepare_{done,total,per_second,seconds_left}` have it too, by `stage` and `unit`.
    """
    gauges = _Gauges(label, total, unit)
    began, before, last_line_at, done = time.monotonic(), 0, time.monotonic(), 0
    columns = (
        TextColumn(label),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = rich.get_console()
    drawn = not console.is_jupyter or find_spec("ipywidgets") is not None  # what a notebook draws a bar with
    with Progress(*columns, console=console, disable=not drawn) as bar:
        task = bar.add_task(label, total=total, rate="")

        def advance(count: int) -> None:
            nonlocal began, before, done, last_line_at
            done += count
            now = time.monotonic()
            rate = (done - before) / max(now - began, 1e-9)
            if not before:
                began, before = now, done
            bar.update(task, advance=count, rate=f"{_rate(rate)} {unit}/s")
            gauges.set(done, rate)
            in_place = drawn and (console.is_terminal or console.is_jupyter)
            if not in_place and now - last_line_at > LINE_EVERY_S:
                last_line_at = now
                left = (total - done) / rate
                bar.console.print(
                    f"{label}: {done:,} of {total:,} {unit}, {_rate(rate)}/s, {left:,.0f} s left", markup=False
                )

        yield advance
    if not drawn:
        console.print(f"{label}: {done:,} of {total:,} {unit}", markup=False)


def _rate(rate: float) -> str:
    """A rate as it is shown: of what takes seconds each, two digits."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


GAUGES = {
    "distilbench_prepare_done": "Finished by now",
    "distilbench_prepare_total": "To do in all",
    "distilbench_prepare_per_second": "Finished per second since the stage began",
    "distilbench_prepare_seconds_left": "Seconds to the end at this rate",
}
"""What Ray's metrics have of a stage, by `stage` and `unit`."""


class _Gauges:
    """Ray's gauges; nothing where Ray does not run."""

    def __init__(self, stage: str, total: int, unit: str) -> None:
        import ray
        from ray.util.metrics import Gauge

        self.total = total
        self.gauges: dict[str, Gauge] = {}
        if ray.is_initialized():
            tags = {"stage": stage, "unit": unit}
            for name, meaning in GAUGES.items():
                gauge = Gauge(name, meaning, tag_keys=tuple(tags))
                gauge.set_default_tags(tags)
                self.gauges[name] = gauge

    def set(self, done: int, rate: float) -> None:
        values = dict(zip(GAUGES, (done, self.total, rate, (self.total - done) / rate), strict=True))
        for name, gauge in self.gauges.items():
            gauge.set(values[name])
