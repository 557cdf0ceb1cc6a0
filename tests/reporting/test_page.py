"""The page and its neighbours: escaping, whole files, missing values, nothing from the network."""

from __future__ import annotations

import csv
import io
import json
import re
import stat
from html.parser import HTMLParser

import pytest

from distilbench.records import read_records
from distilbench.reporting import page
from distilbench.reporting.table import leaderboard

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{7*7}}"


class Tags(HTMLParser):
    """Every tag with its attributes, and the text of the whole page outside script and style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside not in ("script", "style"):
            self.text.append(data)


def render(records, **options):
    return page.render_page(records, leaderboard(records), **({"title": "Synthetic"} | options))


def plain(text):
    return " ".join(" ".join(Tags(text).text).split())


def test_writes_four_whole_files(make_study, tmp_path):
    records = make_study()
    index = page.write_report(records, tmp_path / "new" / "report", title="Synthetic")
    folder = index.parent
    assert index == folder / "index.html"
    assert sorted(p.name for p in folder.iterdir()) == [
        "index.html",
        "leaderboard.csv",
        "plotly.min.js",
        "records.jsonl",
    ]
    assert list(read_records(folder / "records.jsonl")) == records
    assert all(p.stat().st_mode & stat.S_IRUSR for p in folder.iterdir())


def test_writing_again_replaces_and_gives_the_same_bytes(make_study, make_score, tmp_path):
    page.write_report([make_score("an older row")], tmp_path, title="Synthetic")
    page.write_report(make_study(), tmp_path, title="Synthetic")
    first = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert b"an older row" not in b"".join(first.values())
    page.write_report(make_study(), tmp_path, title="Synthetic")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == first


def test_a_failure_leaves_the_old_files_and_no_temporary_ones(make_score, tmp_path, monkeypatch):
    page.write_report([make_score("old")], tmp_path, title="Synthetic")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def broken(path, records):
        path.write_text("half a li")
        raise OSError("disk full")

    monkeypatch.setattr(page, "append_records", broken)
    with pytest.raises(OSError, match="disk full"):
        page.write_report([make_score("new")], tmp_path, title="Synthetic")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_every_text_of_a_record_is_escaped(make_score, make_trial):
    score = make_score(
        HOSTILE,
        record_id=HOSTILE,
        run=HOSTILE,
        method=HOSTILE,
        teacher=HOSTILE,
        start=HOSTILE,
        corpus=HOSTILE,
        corpus_fingerprint=HOSTILE,
        model=HOSTILE,
        demonstration=True,
        hyperparameters={HOSTILE: HOSTILE, "nested": [HOSTILE, {HOSTILE: 1}]},
    )
    provenance = score.provenance.model_copy(
        update={"created_at": HOSTILE, "commit": HOSTILE, "device": HOSTILE, "versions": {HOSTILE: HOSTILE}}
    )
    scores = [s.model_copy(update={"set": HOSTILE + s.set, "variant": s.variant}) for s in score.scores]
    indexes = [c.model_copy(update={"set": HOSTILE}) for c in score.indexes]
    score = score.model_copy(update={"provenance": provenance, "scores": scores, "indexes": indexes})
    trial = make_trial(0, run=HOSTILE, reason=HOSTILE, method=HOSTILE, params={HOSTILE: HOSTILE})
    teacher = score.model_copy(update={"role": "teacher", "record_id": "t"})
    text = render([score, teacher, trial, make_trial(0)], title=HOSTILE, notes=[HOSTILE])
    parsed = Tags(text)
    assert "<img" not in text and "onerror=alert(1)>" not in text
    assert [tag for tag, _ in parsed.tags if tag == "script"] == ["script"] * 5  # three figures, Plotly, our own
    assert not any(name.startswith("on") for _, attributes in parsed.tags for name in attributes)
    assert HOSTILE in "".join(parsed.text)


def test_figure_data_is_json_for_both_themes(make_study):
    text = render(make_study())
    blocks = re.findall(r'<script type="application/json" id="data-(\w+)">(.*?)</script>', text, re.S)
    assert [name for name, _ in blocks] == ["bytes", "dim", "learning"]
    for _, block in blocks:
        assert set(json.loads(block)) == {"light", "dark"}


def test_no_address_outside_the_folder(make_study):
    text = render(make_study())
    assert not re.search(r"https?:|//[a-z]", text.replace("</", ""), re.I)
    neighbours = {"leaderboard.csv", "records.jsonl", "plotly.min.js", "data:,"}
    for tag, attributes in Tags(text).tags:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            address = attributes.get(name)
            assert address is None or address in neighbours or address.startswith("#"), (tag, address)
    assert "@import" not in text and "url(" not in text


def test_every_link_within_the_page_has_its_target(make_study):
    parsed = Tags(render(make_study()))
    ids = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {attributes["href"] for tag, attributes in parsed.tags if tag == "a"}
    assert {link[1:] for link in links if (link or "").startswith("#")} <= set(ids)


def test_missing_values_are_dashes_and_sort_as_missing(make_score):
    text = render([make_score("full"), make_score("s", skip=("STS13",), indexes=[], model="", trial=None)])
    row = re.search(r'<tr class="student[^"]*">\s*<th scope="row" data-v="s">.*?</tr>', text, re.S)
    assert row is not None
    assert row.group().count('data-v=""') == 2  # the average and STS13
    assert "nan" not in plain(text).lower().split()
    assert "not saved" in plain(text)


def test_demonstration_banner(make_score):
    real, demo = make_score("a"), make_score("b", demonstration=True)
    assert "generated text" not in plain(render([real]))
    whole = plain(render([demo]))
    assert "Demonstration corpus: generated text, not a published benchmark." in whole
    assert "of the 2 rows" not in whole
    mixed = plain(render([real, demo]))
    assert "1 of the 2 rows were scored on it" in mixed


def test_reader_is_told_about_seed_sets_and_threads(make_study):
    text = plain(render(make_study()))
    assert "One seed: no interval" in text
    assert "over 4 sets: STS12, STS13, STS14, STSB." in text
    assert "on 1 thread." in text
    assert "Dev selected the students and is no result." in text


def test_record_shows_where_a_number_comes_from_and_how_to_load_the_model(make_score):
    text = plain(render([make_score('odd"name')]))
    for expected in ("id-odd", "f" * 64, "0123abc+changes", "synthetic 0.0", "activation identity", "lr 0.0001"):
        assert expected in text
    assert 'SentenceTransformer("runs/synthetic/students/odd\\"name")' in text


def test_thousands_of_trials_are_capped_and_counted(make_trial):
    text = render([make_trial(n) for n in range(3000)])
    assert f"{page.MAX_TRIALS} of 3,000 shown" in plain(text)
    assert "2,000" not in text and "1,500 of 3,000 trials are drawn" in plain(text)
    assert len(text) < 1_000_000


def test_no_records_is_a_page_too(tmp_path):
    text = page.write_report([], tmp_path, title="Nothing yet").read_text()
    assert "nothing to rank" in plain(text) and "<script src" not in text


def test_toggle_only_where_there_are_subsets(make_score):
    assert 'name="variant"' in render([make_score("s")])
    record = make_score("s")
    single = record.model_copy(update={"scores": [s for s in record.scores if s.variant == "all"]})
    assert 'name="variant"' not in render([single])


def test_csv(make_study):
    board = leaderboard(make_study())
    rows = list(csv.DictReader(io.StringIO(page.leaderboard_csv(board), newline="")))
    assert [row["label"] for row in rows] == [row.record.label for row in board.rows]
    student = next(row for row in rows if row["label"] == "hpd-64")
    assert float(student["sts_average:all"]) == pytest.approx(77.5)
    assert float(student["sts_average:wmean"]) == pytest.approx(78.625)
    assert float(student["sts_average:all:retention_percent"]) == pytest.approx(100 * 77.5 / 79.5)
    assert student["pareto"] == "True" and student["trial"] == "64"
    assert next(row for row in rows if row["role"] == "teacher")["trial"] == ""


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_cells_are_no_formulas(make_score, start):
    formula = f'{start}HYPERLINK("x")'
    record = make_score(formula, method=formula, corpus=formula, model=formula, skip=("STS12",))
    scores = [s.model_copy(update={"set": formula}) if s.set == "STS13" else s for s in record.scores]
    below_zero = [s.model_copy(update={"value": -5.0}) if s.set == "STS14" else s for s in scores]
    text = page.leaderboard_csv(leaderboard([record.model_copy(update={"scores": below_zero})]))
    header, row = csv.reader(io.StringIO(text, newline=""))
    cells = dict(zip(header, row, strict=True))
    assert cells["label"] == cells["method"] == cells["corpus"] == cells["model"] == "'" + formula
    assert not any(cell.startswith(("=", "+", "@", "\t", "\r")) for cell in [*header, *row])
    # a number below zero stays a number
    assert float(cells["sts:STS14:all"]) == -5.0
