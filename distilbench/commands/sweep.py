"""Sweeps: search, confirm, score, publish; one method's run, or one for each of several methods under one leaderboard."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from distilbench.cluster.run_copy import run_copy
from distilbench.commands.method_sweep import Around, MethodSweep, NoStudent
from distilbench.commands.run_folder import on_cluster, one_writer, publish, teacher_notes
from distilbench.commands.sweep_plan import MethodRun, claim_run, plan_method_runs
from distilbench.methods import get_method
from distilbench.methods.method import requirements_of
from distilbench.prepare.stage import prepare_corpus
from distilbench.progress.clock import Clock
from distilbench.reporting.exports import terminal_summary
from distilbench.reporting.page import LivePage
from distilbench.reporting.runs import read_runs
from distilbench.settings.sweep import SweepSettings
from distilbench.stage_times import keep_start, timed_stage


def sweep(settings: SweepSettings, console: Console) -> Path:
    """Run or continue a sweep, and return the path of its leaderboard.

    Raises:
        InputError: bad input, found before anything is written; or storage is gone, and the same command goes on later.
    """
    clock = Clock(settings.time_budget)
    methods, run = plan_method_runs(settings, console)
    corpus, report = methods[0].corpus, settings.report_folder / run.name  # one corpus: rows of one leaderboard compare
    with one_writer(run), run_copy(settings.remote, settings.artifacts, run, report, console) as copy:
        for method in methods:
            claim_run(settings, method, console)
        methods[0].notes += teacher_notes(settings, corpus, console)
        if copy:
            copy.start()
        with on_cluster(settings, console):
            keep_start(run, time.time() - clock.began)
            with timed_stage(run, "prepare", len(corpus.sentences)):
                needs = requirements_of([(get_method(m.space.method), m.space.possible) for m in methods])
                inputs = prepare_corpus(settings, corpus, needs, console, quick=methods[0].quick)
            begun: dict[Path, MethodSweep] = {}
            for method, share, turn in schedule_methods(methods, clock):
                if turn:
                    console.print(f"\n{method.space.method} ({turn})")
                around = Around(console, LivePage(report, run.name, list({**begun, method.run: None})), copy)
                begun[method.run] = MethodSweep(settings, method, methods, inputs, share, around)
                method.missing.clear()
                try:
                    begun[method.run].carry_out()
                except NoStudent as error:  # with several methods the others go on
                    if len(methods) == 1:
                        raise
                    method.missing.append(str(error))
            for method_sweep in begun.values():
                method_sweep.score_references(clock)
        with timed_stage(run, "report"):
            folders = [method.run for method in methods]
            records = read_runs(folders)
            notes = list(dict.fromkeys(note for method in methods for note in (*method.notes, *method.missing)))
            page = publish(settings.report_folder, inputs.corpus, run, records, notes, folders=folders)
        missing = dict.fromkeys(line for method in methods for line in method.missing)
        for line in (*terminal_summary(records, run), *missing):
            console.print(line, markup=False, highlight=False)
        return page


def schedule_methods(methods: Sequence[MethodRun], clock: Clock) -> Iterator[tuple[MethodRun, Clock, str]]:
    """Each method with its share of the time that is left, then those again that time cut off, while much of it is left:
    first those that only confirmations are missing of, which leave the others what they do not need.

    With each a word on its turn, "" where there is one method.
    """
    for number, method in enumerate(methods):
        share = clock.part(len(methods) - number)
        yield method, share, f"{number + 1} of {len(methods)}" if len(methods) > 1 else ""
        clock.row_s = max(clock.row_s, share.row_s)
    again = [method for method in methods if method.cut_off or method.unconfirmed] if len(methods) > 1 else []
    for number, method in enumerate(sorted(again, key=lambda method: method.cut_off)):
        if clock.much_left:
            yield method, clock.part(len(again) - number), "goes on"
