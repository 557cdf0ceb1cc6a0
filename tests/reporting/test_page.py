"""The page and its neighbours: escaping, whole files, missing values, nothing from the network."""

from __future__ import annotations

import csv
import io
import json
import re
import stat
from html.parser import HTMLParser
from pathlib import Path

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


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("configuration", ["", HOSTILE])
def test_every_text_of_a_record_is_escaped(make_score, make_trial, make_pairs, make_cluster, configuration, seeds):
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
        quantisation="int8",
        pairs=[*make_pairs(70.0, HOSTILE), *make_pairs(70.0, HOSTILE + "2", "dev")],
        clusters=[make_cluster(set=HOSTILE), make_cluster(set=HOSTILE, split="dev")],
    )
    provenance = score.provenance.model_copy(
        update={"created_at": HOSTILE, "commit": HOSTILE, "device": HOSTILE, "versions": {HOSTILE: HOSTILE}}
    )
    scores = [s.model_copy(update={"set": HOSTILE + s.set, "variant": s.variant}) for s in score.scores]
    indexes = [c.model_copy(update={"set": HOSTILE}) for c in score.indexes]
    score = score.model_copy(update={"provenance": provenance, "scores": scores, "indexes": indexes})
    trial = make_trial(0, run=HOSTILE, reason=HOSTILE, method=HOSTILE, params={HOSTILE: HOSTILE})
    score = score.model_copy(update={"configuration": configuration})
    teacher = score.model_copy(update={"role": "teacher", "record_id": "t"})
    others = [score.model_copy(update={"seed": seed, "record_id": f"{HOSTILE}{seed}"}) for seed in range(1, seeds)]
    text = render([score, *others, teacher, trial, make_trial(0)], title=HOSTILE, notes=[HOSTILE])
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


@pytest.mark.parametrize("study", ["make_study", "make_seeded"])
def test_every_link_within_the_page_has_its_target(request, study):
    records = request.getfixturevalue(study)()
    parsed = Tags(render(records))
    ids = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {attributes["href"] for tag, attributes in parsed.tags if tag == "a"}
    assert {link[1:] for link in links if (link or "").startswith("#")} <= set(ids)
    # every record has a place of its own, also the second seed's
    assert len([name for name in ids if re.fullmatch("r-[0-9a-f]{12}", name or "")]) == sum(
        record.kind == "score" for record in records
    )


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


def test_csv_has_interval_and_seeds_and_names_every_record(make_seeded):
    board = leaderboard(make_seeded())
    rows = {
        (row["configuration"] or row["label"]): row
        for row in csv.DictReader(io.StringIO(page.leaderboard_csv(board), newline=""))
    }
    assert len(rows) == len(board.rows) == 9
    student = rows["MCR2-32-float32"]
    assert (student["label"], student["quantisation"], student["bytes_per_vector"]) == ("MCR2 d=32", "float32", "128")
    assert (student["seed"], student["seeds"]) == ("0;1;2", "3")
    assert student["record_id"] == "MCR2-32-float32-seed0;MCR2-32-float32-seed1;MCR2-32-float32-seed2"
    assert student["model"].split(";")[2] == "students/MCR2-32-float32-seed2"
    assert float(student["sts_average:all"]) == pytest.approx(68.5)
    assert float(student["sts_average:all:interval95"]) == pytest.approx(4.302653 / 3**0.5, rel=1e-6)
    assert student["sts_average:all:seeds"] == "3"
    assert float(student["pairs:QQP:f1"]) == pytest.approx(76.0)
    teacher = rows["teacher d=384"]
    assert (teacher["seed"], teacher["seeds"], teacher["sts_average:all:interval95"]) == ("0", "1", "")
    assert (teacher["pairs:QQP:f1"], teacher["pairs:QQP:f1:seeds"]) == ("", "0")
    assert (teacher["trial"], teacher["model"]) == ("", "")


def board_row(text, name):
    found = re.search(rf'<tr class="[^"]*">\s*<th scope="row" data-v="{re.escape(name)}">.*?</tr>', text, re.S)
    assert found is not None
    return plain(found.group())


def details(text, name):
    """The text of the row's record at the end of the page."""
    found = re.search(
        rf'<summary><span class="label">{re.escape(name)}</span>.*?<details class="fold record">', text, re.S
    )
    assert found is not None
    return plain(found.group())


def test_a_row_of_seeds_shows_mean_interval_and_every_seeds_own_values(make_seeded):
    text = render(make_seeded())
    row = board_row(text, "MCR2-32-float32")
    assert "68.50 ±\xa02.48".replace("\xa0", " ") in row and "3 seeds" in row
    assert "±" not in board_row(text, "PCA-32") and "1 seed" in board_row(text, "PCA-32")
    whole = details(text, "MCR2-32-float32")
    for seed, average in enumerate(("67.50", "68.50", "69.50")):
        assert f"MCR2-32-float32-seed{seed}" in whole and average in whole
        assert f"scores of seed {seed}" in whole
    assert "Label MCR2 d=32" in whole and "Seeds 0, 1, 2" in whole
    assert "Seed 0; the other seeds' folders are in the table above." in whole
    assert "one seed: no interval" in details(text, "PCA-32")
    assert "6 of 9 rows are means over 3 seeds" in plain(text)


def test_quantisation_has_a_column_where_there_is_any(make_seeded, make_score):
    text = render(make_seeded())
    assert "Quantisation of the vectors" in text
    assert " int8 " in board_row(text, "MCR2-32-int8") and "32 dimensions, 4 bytes, binary" in plain(text)
    assert "Quantisation of the vectors" not in render([make_score("s")])
    assert "64 dimensions, 256 bytes, float32" in plain(render([make_score("s")]))


def test_cluster_table_only_where_there_is_a_clustering(make_seeded, make_score):
    text = render(make_seeded())
    assert "can be compared only between rows that search an equal share of the documents" in plain(text)
    (table,) = re.findall(r'<table id="clusters".*?</table>', text, re.S)
    first = plain(re.findall(r"<tr class=.student.>.*?</tr>", table, re.S)[0])
    assert first == "MCR2-128-float32 3 seeds implicit 32 30 20,000 64.00 ± 2.48 4.00 ± 2.48 0 0.5 0.25 1"
    assert "Cluster retrieval" not in render([make_score("s")])


def test_pair_columns_say_their_split(make_score, make_pairs):
    both = plain(render([make_score("a", pairs=[*make_pairs(80.0), *make_pairs(70.0, "SICK", "dev")])]))
    assert "Pairs, QQP (test)" in both and "Pairs, SICK (dev)" in both
    assert "Columns “(dev)” are of a set without a test score." in both
    assert "“(dev)”" not in plain(render([make_score("a", pairs=make_pairs(80.0))]))


def test_a_collapsed_trial_shows_its_reason_and_geometry(make_trial):
    failed = make_trial(0, state="FAIL", reason="collapsed: effective rank 1.02 of 64 dimensions, below 1.5")
    rungs = [rung.model_copy(update={"metrics": {"effective_rank": 1.0234, "variance": 0.5}}) for rung in failed.rungs]
    text = plain(render([failed.model_copy(update={"rungs": rungs}), make_trial(1)]))
    assert "collapsed: effective rank 1.02 of 64 dimensions" in text
    assert "Effective rank" in text and " 1.02 0.5 " in text
    assert "Effective rank" not in plain(render([make_trial(1)]))


def test_a_report_of_old_records_is_what_it_was(tmp_path):
    folder = Path(__file__).parents[2] / "reports" / "real-data"
    page.write_report(list(read_records(folder / "records.jsonl")), tmp_path, title="Old records")
    with (folder / "leaderboard.csv").open(newline="") as old, (tmp_path / "leaderboard.csv").open(newline="") as new:
        before, after = list(csv.DictReader(old)), list(csv.DictReader(new))
    assert before and [{key: row[key] for key in before[0]} for row in after] == before
