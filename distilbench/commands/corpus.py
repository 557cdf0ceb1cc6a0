"""The corpus of a run, and what it was found to have."""

from __future__ import annotations

import numpy as np
from rich.console import Console

from distilbench.data.builtin import builtin_corpus
from distilbench.data.corpus import Corpus, CorpusBuilder, Rows
from distilbench.data.folder import folder_corpus
from distilbench.data.judgements import with_judgements
from distilbench.data.requirements import Requirements
from distilbench.data.roles import with_roles
from distilbench.data.scored_tasks import with_scored_tasks
from distilbench.data.selected import with_selection
from distilbench.data.sentences import in_batches
from distilbench.data.taught import NO_ROWS, only_taught
from distilbench.data.text import text_name
from distilbench.data.training_text import with_text
from distilbench.data.vector_file import GivenVectors
from distilbench.errors import InputError
from distilbench.records import ON_DEMONSTRATION
from distilbench.selection import STS
from distilbench.settings.run import PreparationSettings


def load_corpus(settings: PreparationSettings, needs: Requirements, console: Console) -> Corpus:
    """The data folder, or the built-in corpus; what was found and not found is printed.

    Raises:
        InputError: the folder is unusable, or lacks what the methods need.
    """
    if settings.data_folder:
        corpus = folder_corpus(settings.data_folder, settings.limits, needs, settings.texts, settings.selection)
    elif settings.texts.sources and not settings.demonstration:
        corpus = _of_text(settings, needs)
    else:
        corpus = builtin_corpus(settings.corpus_size, needs=needs, own_text=bool(settings.texts.sources))
    asked = settings.selection
    tasks = settings.scored_tasks(asked or STS)
    corpus = with_scored_tasks(corpus, settings.data_folder, tasks, settings.limits.labelled)
    corpus = with_judgements(corpus, settings.data_folder, settings.limits, passages=bool(needs.negatives))
    own_train = corpus.train
    corpus = with_text(corpus, settings.texts, settings.limits.sentences, settings.artifacts)
    if settings.given is not None:
        named = np.setdiff1d(corpus.train, own_train) if settings.text else NO_ROWS
        corpus = _taught(settings, corpus, settings.given, named)
    corpus, why = with_selection(corpus, asked)
    if settings.by_role:
        corpus = with_roles(corpus, settings.artifacts)
    if needs.augmentation and not settings.augment:
        raise InputError("augmentation: true, but nothing says how to augment; expected --augment OPERATIONS")
    if settings.augment and not needs.augmentation:
        console.print("--augment is left aside: nothing in this run trains on augmented sentences (augmentation: true)")
    console.print(f"Corpus {corpus.name}: {len(corpus.sentences)} distinct sentences", markup=False)
    print_sets(corpus, console)
    console.print(f"Students are selected by {corpus.selection.title} ({corpus.selection}): {why}.", markup=False)
    if corpus.demonstration:
        console.print(f"Every score of this run is {ON_DEMONSTRATION}.", markup=False)
    return corpus


def _taught(settings: PreparationSettings, corpus: Corpus, given: GivenVectors, named: Rows) -> Corpus:
    """The corpus of what a teacher's vectors are given of; `named` are the training rows of `--text`.

    Raises:
        InputError: a sentence that the user named has none.
    """
    source = f"--teacher-vectors {settings.teacher_vectors}"
    places = np.concatenate([given.places(batch) for batch in in_batches(corpus.sentences)])
    return only_taught(corpus, places >= 0, source, settings.artifacts, named)


def _of_text(settings: PreparationSettings, needs: Requirements) -> Corpus:
    """A corpus of nothing yet: what is trained on comes from --text, and so do the sentences that are held out.

    Raises:
        InputError: the methods need what plain text does not have.
    """
    for what, needed in (("triplets", needs.triplets), ("a labelled pair task", bool(needs.pair_tasks))):
        if needed:
            raise InputError(
                f"--text alone has no {what}; expected --data with it, or --demonstration for generated ones"
            )
    return CorpusBuilder(text_name(settings.texts.sources[0])).build()


def print_sets(corpus: Corpus, console: Console) -> None:
    """What was found and not found."""
    for line in corpus.found:
        console.print(f"  found      {line}", markup=False)
    for line in corpus.missing:
        console.print(f"  not found  {line}", markup=False)
