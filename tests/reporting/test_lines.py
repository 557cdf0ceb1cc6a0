"""The lines of the leaderboard: codes folded into their encoder, equal rows into one, in the order of dev."""

from __future__ import annotations

from distilbench.reporting.board import leaderboard
from distilbench.reporting.lines import encoder_lines


def forms(make_score, label, quality, codes=("float32", "int8"), **changes):
    sizes = {"float32": 256, "int8": 64, "int4": 32, "binary": 8}
    return [
        make_score(
            label,
            quality,
            record_id=f"{label} {code}",
            quantisation=code,
            bytes_per_vector=sizes[code],
            indexes=[],
            **changes,
        )
        for code in codes
    ]


def with_dev(record, value):
    scores = [s.model_copy(update={"value": value}) if s.split == "dev" else s for s in record.scores]
    return record.model_copy(update={"scores": scores})


def told(lines):
    return [(line.row.name, line.row.record.quantisation, len(line.codes), line.kind) for line in lines]


def test_codes_are_folded_and_references_stand_on_top(make_score):
    baseline = {"role": "baseline", "trial": None, "model": ""}
    records = [
        *forms(make_score, "worse", 70.0),
        *forms(make_score, "better", 75.0, trial=4),
        *forms(make_score, "PCA d=64", 74.0, method="pca", **baseline),
        *forms(make_score, "PCA d=32", 60.0, method="pca", **(baseline | {"dim": 32})),
        *forms(make_score, "random", 79.0, method="random_projection", **baseline),
        *forms(make_score, "teacher", 81.0, role="teacher", method="teacher", trial=None, model=""),
    ]
    lines = encoder_lines(leaderboard(records))
    assert told(lines) == [
        ("teacher", "float32", 1, "reference"),
        ("PCA d=64", "int8", 3, "reference"),
        ("better", "int8", 1, "encoder"),
        ("worse", "int8", 1, "encoder"),
        ("random", "int8", 1, "other"),
    ]
    assert sum(1 + len(line.codes) for line in lines) == len(records)


def test_the_form_that_stands_for_an_encoder_is_chosen_on_dev(make_score):
    float32, int8 = forms(make_score, "s", 75.0)
    far = [
        r.model_copy(update={"scores": [s.model_copy(update={"n": 10**6}) for s in r.scores]}) for r in (float32, int8)
    ]
    apart = leaderboard([with_dev(far[0], 80.0), with_dev(far[1], 70.0)])
    assert told(encoder_lines(apart)) == [("s", "float32", 1, "encoder")]
    # What is recommended stands for its encoder, whatever else there is.
    taken = [row for row in apart.rows if row.record.quantisation == "int8"]
    assert told(encoder_lines(apart, taken)) == [("s", "int8", 1, "encoder")]
