"""What `--select` takes, and how it is written afterwards."""

from __future__ import annotations

import pytest

from distilbench.errors import InputError
from distilbench.selection import STS, Selection


@pytest.mark.parametrize(
    ("text", "written", "title", "tasks"),
    [
        ("sts", "sts", "STS average", ("sts",)),
        ("retrieval", "retrieval", "nDCG@10", ("retrieval",)),
        ("nDCG@10", "retrieval", "nDCG@10", ("retrieval",)),  # the kind's own metric
        ("mrr@10", "mrr@10", "MRR@10", ("retrieval",)),
        ("fidelity", "fidelity", "Fidelity", ()),
        ("retrieval=0.7, sts=0.3", "retrieval=0.7,sts=0.3", "0.7 nDCG@10 + 0.3 STS average", ("retrieval", "sts")),
        (
            "sts,retrieval, fidelity",
            "sts=0.333333,retrieval=0.333333,fidelity=0.333333",
            "mean of STS average, nDCG@10 and Fidelity",
            ("sts", "retrieval"),
        ),
        ("retrieval,documents=teacher", "retrieval,documents=teacher", "nDCG@10", ("retrieval",)),
        (
            "documents=teacher,mrr@10=1,fidelity=1",
            "mrr@10=0.5,fidelity=0.5,documents=teacher",
            "mean of MRR@10 and Fidelity",
            ("retrieval",),
        ),
        ("retrieval=7,sts=3", "retrieval=0.7,sts=0.3", "0.7 nDCG@10 + 0.3 STS average", ("retrieval", "sts")),
    ],
)
def test_a_measure_or_a_mix(text: str, written: str, title: str, tasks: tuple[str, ...]) -> None:
    selection = Selection.parse(text)
    assert str(selection) == written and selection.tasks == tasks and selection.asked
    assert selection.title == title
    assert Selection.parse(written) == selection
    assert sum(part.weight for part in selection.parts) == pytest.approx(1)


def test_whose_documents_are_searched_is_no_part_of_the_measure() -> None:
    pair, own = Selection.parse("retrieval,documents=teacher"), Selection.parse("retrieval")
    assert pair.by_teacher and not own.by_teacher and pair != own and pair.measure == own


def test_what_was_asked_for_is_what_was_taken_by_itself() -> None:
    assert Selection.parse("sts") == STS and not STS.asked


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected one of sts, retrieval"),
        ("classification", "'classification' is no measure"),
        ("bleu", "'bleu' is no measure; expected one of sts, retrieval, .*retrieval=0.7,sts=0.3"),
        ("retrieval=half,sts=0.5", "the weight 'half' is no number above 0"),
        ("retrieval=0,sts=1", "the weight '0' is no number above 0"),
        ("retrieval=-1,sts=1", "the weight '-1' is no number above 0"),
        ("retrieval=inf,sts=1", "the weight 'inf' is no number above 0"),
        ("retrieval=0.7,sts", "expected one of"),  # whose weight?
        ("retrieval,ndcg@10", "retrieval is there twice"),
        ("sts,documents=teacher", "sts has no documents; expected retrieval or fidelity"),
        ("documents=teacher", "expected one of sts, retrieval"),
        ("retrieval,documents=bge", "expected one of"),
    ],
)
def test_anything_else_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=f"--select {text}.*: .*{message}"):
        Selection.parse(text)
