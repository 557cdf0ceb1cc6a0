"""`distilbench prepare`: everything that trials read, into the store."""

from __future__ import annotations

import functools
from typing import Any

from rich.console import Console

from distilbench.commands.corpus import load_corpus
from distilbench.commands.run_folder import check_encoders, check_student_encoder, on_cluster
from distilbench.commands.sweep_plan import space_and_corpus, space_notes
from distilbench.data.requirements import Requirements
from distilbench.methods import get_method
from distilbench.methods.method import requirements_of
from distilbench.prepare.stage import prepare_corpus
from distilbench.settings.commands import PrepareSettings


def prepare(settings: PrepareSettings, console: Console) -> dict[str, Any]:
    """Everything that trials read, into the store; where it is and how large, JSON-able."""
    method = get_method(settings.method) if settings.method else None
    check_encoders(settings)
    read = functools.partial(load_corpus, settings, console=console)
    if method is None:
        check_student_encoder(settings, settings.student)
        needs = Requirements(augmentation=bool(settings.augment), students=(None,))
        corpus = read(needs)
    else:
        space, corpus = space_and_corpus(settings, str(settings.method), read)
        for note in space_notes(space):
            console.print(note, markup=False)
        needs = requirements_of([(method, space.possible)])
    if settings.remote:
        settings.remote.check()
    with on_cluster(settings, console):
        inputs = prepare_corpus(settings, corpus, needs, console)
    description = inputs.described()
    for name, artifact in description["artifacts"].items():
        console.print(f"{name:<12} {artifact['bytes'] / 1e6:>10,.1f} MB  {artifact['path']}", markup=False)
    return description
