"""The corpus of a run, and what it was found to have."""

from __future__ import annotations

import numpy as np
from rich.console import Console

from distilbench.data.about import FILE, about
from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.data.evaluation_sets import with_scored_tasks
from distilbench.data.folder import folder_corpus
from distilbench.data.requirements import Requirements
from distilbench.data.roles import with_roles
from distilbench.data.selected import with_selection
from distilbench.data.sentences import in_batches
from distilbench.data.text import text_name
from distilbench.data.training_text import with_judgements, with_text
from distilbench.data.vector_file import restrict_to_vectors
from distilbench.errors import InputError
from distilbench.records import ON_DEMONSTRATION
from distilbench.selection import STS
from distilbench.settings.run import PreparationSettings


def load_corpus(settings: PreparationSettings, needs: Requirements, console: Console) -> Corpus:
    """The corpus of the data folder and of `--text`; what was found and not found is printed."""
    root, texts, limits = settings.sets_folder, settings.texts, settings.limits
    asked, where = settings.selection, "--select"
    if root is not None and asked is None:
        asked, where = about(root).selection, FILE
    if needs.augmentation and not settings.augment:
        raise InputError("augmentation: true, but nothing says how to augment; expected --augment OPERATIONS")
    if root is not None:
        corpus = folder_corpus(root, limits, needs, bool(texts.sources), asked)
    else:  # what is trained on comes from --text, and so do the sentences that are held out
        for what, needed in (("triplets", needs.triplets), ("a labelled pair task", bool(needs.pair_tasks))):
            if needed:
                raise InputError(f"--text alone has no {what}; expected --data with it")
        corpus = CorpusBuilder(text_name(texts.sources[0])).build()
    corpus = with_scored_tasks(corpus, root, settings.scored_tasks(asked or STS), limits.pairs)
    corpus = with_judgements(corpus, root, limits, passages=bool(needs.negatives))
    own_train = corpus.train
    corpus = with_text(corpus, texts, limits.sentences, settings.artifacts)
    if settings.given is not None:
        named = np.setdiff1d(corpus.train, own_train) if settings.text else own_train[:0]
        places = np.concatenate([settings.given.places(batch) for batch in in_batches(corpus.sentences)])
        corpus = restrict_to_vectors(corpus, places >= 0, f"--teacher-vectors {settings.teacher_vectors}", named)
    corpus, why = with_selection(corpus, asked, where)
    if settings.teacher_encoder.by_role:
        corpus = with_roles(corpus, settings.artifacts)
    if settings.augment and not needs.augmentation:
        console.print("--augment is left aside: nothing in this run trains on augmented sentences (augmentation: true)")
    console.print(f"Corpus {corpus.name}: {len(corpus.sentences)} distinct sentences", markup=False)
    print_sets(corpus, console)
    console.print(f"Students are selected by {corpus.selection.title} ({corpus.selection}): {why}.", markup=False)
    if corpus.demonstration:
        console.print(f"Every score of this run is {ON_DEMONSTRATION}.", markup=False)
    return corpus


def print_sets(corpus: Corpus, console: Console) -> None:
    """Print what was found and not found."""
    for told, lines in (("found    ", corpus.found), ("not found", corpus.missing)):
        for line in lines:
            console.print(f"  {told}  {line}", markup=False)
