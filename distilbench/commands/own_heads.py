"""What only a student with a head of its own has: pair tasks by DSE's pair head."""

from __future__ import annotations

from distilbench.data.evaluation_sets import EvaluationData
from distilbench.data.retrieval_sets import SPLITS
from distilbench.encoders.encoder import EncoderSpec, default_device
from distilbench.evaluation.encoders import TaskScores
from distilbench.evaluation.pairs import pair_scores
from distilbench.records import Score


def own_head_scores(spec: EncoderSpec, data: EvaluationData) -> TaskScores:
    """The scores of the task that the student's head was trained for, and a note where that task is not in the data.

    Nothing of an encoder without such a head.

    Raises:
        InputError: its head cannot be read.
    """
    from distilbench.encoders.pair_head import DESCRIPTION, load_pair_scorer

    folder = spec.folder()
    if folder is None or not (folder / DESCRIPTION).is_file():
        return TaskScores()
    scorer = load_pair_scorer(folder, default_device())
    tasks = [task for task in data.corpus.pair_tasks if task.name == scorer.task]
    if not tasks:
        return TaskScores([], [f"its own pair head, for {scorer.task}, is not scored: there is no such pair task"])
    text, scores = data.corpus.sentences, list[Score]()
    for split in SPLITS:
        if split not in tasks[0].splits:
            continue
        pairs = tasks[0].splits[split]
        left, right = ([text[int(row)] for row in side] for side in (pairs.left_P, pairs.right_P))
        scores += pair_scores(tasks[0], split, scorer.outputs(left, right))
    return TaskScores(scores)
