"""Sweeps: search, confirm, score, publish; one method's run, or one for each of several methods under one leaderboard."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from distilbench.cluster.nodes import nodes_line
from distilbench.cluster.resources import ray_cluster
from distilbench.cluster.run_copy import run_copy
from distilbench.commands.method_runs import claim_run, plan_method_runs
from distilbench.commands.method_sweep import Around, MethodSweep, NoStudent
from distilbench.commands.run_folder import one_writer, publish, report_folder
from distilbench.commands.schedule_methods import MethodRun, schedule_methods
from distilbench.methods import get_method
from distilbench.methods.parts.requirements import requirements_of
from distilbench.prepare.artifacts import Artifacts
from distilbench.prepare.stage import prepare_corpus
from distilbench.progress.clock import Clock
from distilbench.reporting.live_page import LivePage
from distilbench.reporting.runs import read_runs
from distilbench.reporting.terminal_summary import terminal_summary
from distilbench.settings.sweep import SweepSettings
from distilbench.stage_times import StageTiming, keep, timed_stage


def sweep(settings: SweepSettings, console: Console) -> Path:
    """Run or continue a sweep, and return the path of its leaderboard.

    Raises:
        InputError: bad input, found before anything is written; or storage is gone, and the same command goes on later.
    """
    clock = Clock(settings.time_budget)
    members, run = plan_method_runs(settings, console)
    report = report_folder(settings, run)
    with one_writer(run), run_copy(settings.remote, settings.artifacts, run, report, console) as copy:
        for member in members:
            claim_run(settings, member, console)
        if copy:
            copy.start()
        with ray_cluster(settings.address, settings.cpus, settings.dashboard):
            if line := nodes_line(settings.share.grow_to):
                console.print(line, markup=False)
            keep(run, StageTiming(stage="start", seconds=time.time() - clock.began))
            inputs = _prepare(settings, members, run, console)
            _sweep_methods(settings, members, inputs, clock, Around(console, LivePage(report, run.name, []), copy))
        with timed_stage(run, "report"):
            folders = [member.run for member in members]
            records = read_runs(folders)
            notes = list(dict.fromkeys(note for member in members for note in (*member.notes, *member.missing)))
            page = publish(settings, inputs.corpus, run, records, notes, folders=folders)
        missing = dict.fromkeys(line for member in members for line in member.missing)
        for line in (*terminal_summary(records, run), *missing):
            console.print(line, markup=False, highlight=False)
        return page


def _prepare(settings: SweepSettings, members: Sequence[MethodRun], run: Path, console: Console) -> Artifacts:
    """One preparation for all methods: rows of one leaderboard are of one corpus."""
    corpus = members[0].corpus
    with timed_stage(run, "prepare", len(corpus.sentences)):
        wanted = requirements_of([(get_method(member.space.method), member.space.possible) for member in members])
        return prepare_corpus(settings, corpus, wanted, console)


def _sweep_methods(
    settings: SweepSettings, members: Sequence[MethodRun], inputs: Artifacts, clock: Clock, around: Around
) -> None:
    """Carry out every method in its turn; with several, one without a student does not end the others."""
    begun: dict[Path, None] = {}
    for member, share, turn in schedule_methods(members, clock):
        if turn:
            around.console.print(f"\n{member.space.method} ({turn})")
        begun[member.run] = None
        member.missing.clear()
        page = LivePage(around.page.report, around.page.title, list(begun))
        try:
            MethodSweep(settings, member, members, inputs, share, around._replace(page=page)).carry_out()
        except NoStudent as error:
            if len(members) == 1:
                raise
            member.missing.append(str(error))
