"""The page and its neighbours: escaping, whole files, missing values, nothing from the network."""

from __future__ import annotations

import hashlib
import json
import re
import stat
from html.parser import HTMLParser
from pathlib import Path

import plotly.graph_objects as go
import pytest
from plotly.basedatatypes import BaseTraceType

from distilbench.evaluation.examples import Searched
from distilbench.records import AS_IT_CAME, read_records
from distilbench.reporting import page
from distilbench.reporting.board import leaderboard
from distilbench.reporting.comparison import Comparison
from distilbench.reporting.drawing import DARK_OF, LIGHT, plot_of
from distilbench.reporting.formats import binary, short
from distilbench.reporting.page import BUNDLE, plotly_script, score_lines
from distilbench.reporting.run_facts import Trainings, commands, run_facts

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
    """The leaderboard's HTML."""
    board = leaderboard(records)
    runs = run_facts(records, board)
    return page.Pages(records, board, **({"title": "Synthetic", "runs": runs} | options)).index()


def written(records, folder, **options):
    """The HTML of every page of a report, by its path."""
    index = page.write_report(records, folder, **({"title": "Synthetic"} | options))
    return {str(p.relative_to(index.parent)): p.read_text() for p in sorted(folder.rglob("*.html"))}


def run_html(records, folder, **options):
    """The page of the only run."""
    [text] = [text for name, text in written(records, folder, **options).items() if name.startswith("runs/")]
    return text


def encoder_html(records, folder, name):
    """The page of the row called `name`."""
    found = [text for file, text in written(records, folder).items() if file.startswith("encoders/")]
    [text] = [text for text in found if re.search(rf"<h1>{re.escape(name)}</h1>", text)]
    return text


def files(folder):
    """Every file by its path."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def plain(text):
    return " ".join(" ".join(Tags(text).text).split())


def test_writes_whole_files(make_study, tmp_path):
    records = make_study()
    index = page.write_report(records, tmp_path / "new" / "report", title="Synthetic")
    folder = index.parent
    assert index == folder / "index.html"
    assert sorted(p.name for p in folder.iterdir() if p.is_file()) == [
        "board.js",
        "index.html",
        *(f"leaderboard.{kind}" for kind in ("csv", "json", "md", "parquet", "tex")),
        "plotly.min.js",
        "records.jsonl.xz",
        "report.css",
        "report.js",
    ]
    scores = [r for r in records if r.kind == "score"]
    assert len(list((folder / "encoders").iterdir())) == len(scores) and len(list((folder / "runs").iterdir())) == 1
    assert list(read_records(folder / "records.jsonl.xz")) == records
    assert all(p.stat().st_mode & stat.S_IRUSR for p in folder.iterdir())


def test_writing_again_replaces_and_gives_the_same_bytes(make_study, make_score, tmp_path):
    page.write_report([make_score("an older row")], tmp_path, title="Synthetic")
    (tmp_path / "encoders" / "notes.html").write_text("the user's own")
    page.write_report(make_study(), tmp_path, title="Synthetic")
    first = files(tmp_path)
    assert b"an older row" not in b"".join(first.values()) and "encoders/notes.html" in first
    page.write_report(make_study(), tmp_path, title="Synthetic")
    assert files(tmp_path) == first


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("configuration", ["", HOSTILE])
def test_every_text_of_a_record_is_escaped(make_score, make_trial, make_pairs, configuration, seeds, tmp_path):
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
    records = [score, *others, teacher, trial, make_trial(0)]
    found = written(records, tmp_path / "report", title=HOSTILE, notes=[HOSTILE])
    assert len(found) == 1 + 2 + 2  # the leaderboard, two rows, two runs
    for name, text in found.items():
        parsed = Tags(text)
        assert "<img" not in text and "onerror=alert(1)>" not in text
        own = [attributes for tag, attributes in parsed.tags if tag == "script"]
        root = "" if name == "index.html" else "../"
        sources = [root + "report.js", *["board.js"] * (name == "index.html")]
        sources += [root + "plotly.min.js"] * ("data-plot" in text)
        assert [attributes["src"] for attributes in own if "src" in attributes] == sources
        assert all(a.get("type") == "application/json" for a in own if "src" not in a)
        assert not any(key.startswith("on") for _, attributes in parsed.tags for key in attributes)
        assert HOSTILE in "".join(parsed.text)
        assert re.fullmatch(r"index\.html|(encoders/r|runs/s)-[0-9a-f]{12}\.html", name)


def test_no_address_outside_the_folder_and_every_link_has_its_target(make_study, make_seeded, tmp_path):
    for number, records in enumerate([make_study(), make_seeded()]):
        folder = tmp_path / str(number)
        for file, text in written(records, folder).items():
            assert not re.search(r"https?:|//[a-z]", text.replace("</", ""), re.I)
            assert "@import" not in text and "url(" not in text
            ids = {attributes["id"] for _, attributes in Tags(text).tags if "id" in attributes}
            for tag, attributes in Tags(text).tags:
                for name in ("src", "href", "action", "data", "poster", "srcset"):
                    address = attributes.get(name)
                    if address is None or address == "data:,":
                        continue
                    there = (
                        address[1:] in ids if address.startswith("#") else ((folder / file).parent / address).is_file()
                    )
                    assert there, (file, tag, address)
        css = (folder / "report.css").read_text()
        assert "@import" not in css and "url(" not in css


def test_the_policy_lets_no_page_run_or_load_anything_else(make_study, tmp_path):
    for text in written(make_study(), tmp_path).values():
        [policy] = [a["content"] for t, a in Tags(text).tags if a.get("http-equiv") == "Content-Security-Policy"]
        rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split(";")}
        assert rules["default-src"] == ["'none'"] and rules["script-src"] == ["'self'", "file:"]
        assert rules["base-uri"] == rules["form-action"] == ["'none'"] and "connect-src" not in rules


def test_missing_values_are_left_out(make_score, page_rows, tmp_path):
    records = [make_score("full"), make_score("s", skip=("STS13",), indexes=[], model="", trial=None)]
    text = render(records)
    row = page_rows(text)["s"]
    assert row["scores"].keys() & {"test", "sts:STS13"} == set() and "index_bytes" not in row
    assert page_rows(text)["full"]["index_bytes"] == 64 * 4 * 20000
    own = plain(encoder_html(records, tmp_path, "s"))
    assert "nan" not in f"{plain(text)} {own}".lower().split()
    assert "not saved" in own and "Load it" not in own


def test_record_shows_where_a_number_comes_from_and_how_to_load_the_model(make_score, make_trial, tmp_path):
    params = {"lr": 1e-4, "batch": 256, "activation": "identity"}
    found = written([make_score('odd"name'), make_trial(3, params=params)], tmp_path)
    text = plain(next(page for name, page in found.items() if name.startswith("encoders/")))
    for expected in ("id-odd", "f" * 64, "0123abc+changes", "synthetic 0.0", "activation identity", "lr 0.0001"):
        assert expected in text
    assert 'SentenceTransformer("runs/synthetic/students/odd\\"name")' in text
    assert "distilbench reproduce runs/synthetic 3" in text


def test_a_live_page_is_without_what_takes_seconds(make_study, tmp_path):
    whole = written(make_study(), tmp_path / "whole")
    live = written(make_study(), tmp_path / "live", live=True)
    assert set(whole) == set(live)
    assert (tmp_path / "whole" / "leaderboard.parquet").exists() and not (
        tmp_path / "live" / "leaderboard.csv"
    ).exists()
    [run] = [name for name in whole if name.startswith("runs/")]
    assert "plot-importance" in live[run]


def test_a_row_of_seeds_shows_mean_interval_and_every_seeds_own_values(make_seeded, page_rows, tmp_path):
    text = render(make_seeded())
    assert page_rows(text)["MCR2-32-float32"]["scores"]["test"] == pytest.approx([67.5, 68.5, 69.5])
    assert page_rows(text)["PCA-32"]["seeds"] == 1
    whole = plain(encoder_html(make_seeded(), tmp_path, "MCR2-32-float32"))
    for seed, average in enumerate(("67.50", "68.50", "69.50")):
        assert f"MCR2-32-float32-seed{seed}" in whole and average in whole
        assert f"Seed {seed}" in whole
    assert "Label MCR2 d=32" in whole and "Seeds 0, 1, 2" in whole
    assert "Seed 0; the other seeds' folders are in the table below." in whole
    assert "one seed: no interval" in plain(encoder_html(make_seeded(), tmp_path, "PCA-32"))
    assert "6 of 9 rows are means over 3 seeds" in plain(text)


def test_a_collapsed_trial_shows_its_reason_and_geometry(make_trial, tmp_path):
    failed = make_trial(0, state="FAIL", reason="collapsed: effective rank 1.02 of 64 dimensions, below 1.5")
    rungs = [rung.model_copy(update={"metrics": {"effective_rank": 1.0234, "variance": 0.5}}) for rung in failed.rungs]
    text = plain(run_html([failed.model_copy(update={"rungs": rungs}), make_trial(1)], tmp_path))
    assert "collapsed: effective rank 1.02 of 64 dimensions" in text
    assert "Effective rank" in text and " 1.02 0.5 " in text
    assert "Effective rank" not in plain(run_html([make_trial(1)], tmp_path))


PARAMS = {"lr": 1e-4, "batch": 256, "activation": "identity"}


def row_of(*records):
    (row,) = leaderboard(records).rows
    return row


def test_every_score_of_every_seed(make_score):
    lines = score_lines(
        row_of(make_score("s", 75.0, record_id="0"), make_score("s", 77.0, seed=1, record_id="1", skip=("STS13",)))
    )
    assert list(lines) == ["sts", "retrieval"]
    by_key = {(s.set, s.split, s.variant): (s.n, [value for value, _, _ in values]) for s, values in lines["sts"]}
    assert by_key["STS12", "test", "all"] == (1000, [67.0, 69.0])
    assert by_key["STS13", "test", "wmean"][1] == [77.5, None] and by_key["STSB", "dev", "all"][0] == 1500


def test_what_a_row_loses_is_escaped_and_stays_with_the_records(make_study, make_examples, page_rows, tmp_path):
    records = make_study()
    board = leaderboard(records)
    row, silent = board.rows[2:4]
    hidden = make_examples("", shown=False, sts={}, searches={"own": Searched(queries=40, lost=2, won=0)})
    examples = {row.anchor: make_examples(HOSTILE), silent.anchor: hidden}
    found = written(records, tmp_path, compared=Comparison(seeds=board.anchors, examples=examples))
    text = found[f"encoders/{row.anchor}.html"]
    assert "<img" not in text and "alert(1)</script>" not in text
    told = "".join(Tags(text).text)
    assert told.count(HOSTILE) == 3 * 20 + 2 + 2 * 2 + 1 and f"{HOSTILE} 19" in told
    assert "Lost in own: 20 of 22" in told and "Won in own: 1" in told and "nothing" in told
    assert "of the 40 queries" in plain(text).lower() and "1,200.5" in told
    own = plain(found[f"encoders/{silent.anchor}.html"])
    assert "forbid" in own and "answers 2 that" in own and "Lost in" not in own
    rows = page_rows(found["index.html"])
    assert rows[row.name]["losses"] == "22 lost, 1 won" and rows[silent.name]["losses"] == "2 lost, 0 won"
    others = [name for name in rows if name not in (row.name, silent.name)]
    assert all("losses" not in rows[name] for name in others) and "<img" not in found["index.html"]
    bare = found[f"encoders/{board.rows[4].anchor}.html"]
    assert "What is lost" not in bare
    again = page.report_from([tmp_path / "records.jsonl.xz"], tmp_path / "again")
    assert (again.parent / "encoders" / f"{row.anchor}.html").read_text() == text


@pytest.mark.parametrize(
    ("number", "text", "size"),
    [
        (0, "0", "0 B"),
        (0.00001, "0.00001", "0 B"),
        (0.012345, "0.0123", "0 B"),
        (99.96, "100", "100 B"),
        (999_700, "999,700", "1,000 kB"),  # three digits of 999.7 are 1e+03
        (1.2345e12, "1,234,500,000,000", "1,234 GB"),
    ],
)
def test_no_number_is_in_exponent_form(number, text, size):
    assert (short(number), binary(number)) == (text, size)


def test_commands(make_score, make_trial):
    row = row_of(make_score("s", record_id="0"), make_score("s", seed=1, record_id="1"))
    trials = [make_trial(3, params=PARAMS), make_trial(3, params=PARAMS, seed=1, confirms=True)]
    assert commands(row, Trainings(trials)) == [
        "distilbench reproduce runs/synthetic 3",
        "distilbench reproduce runs/synthetic 3 --seed 1",
    ]
    assert commands(row_of(make_score("pca", role="baseline")), Trainings(trials)) == []
    outsider = row_of(make_score("my model; rm -rf", role="encoder", start=AS_IT_CAME))
    assert commands(outsider, Trainings(trials)) == ["distilbench evaluate 'my model; rm -rf' --data DIR"]


NOTE = BUNDLE.with_name("PLOTLY.md")


def test_the_bundle_is_the_one_that_is_noted() -> None:
    script, note = plotly_script(), NOTE.read_text()
    assert hashlib.sha256(script.encode()).hexdigest() in note
    assert f"{len(script.encode()):,} bytes" in note and f"{BUNDLE.stat().st_size:,} " in note
    assert "Permission is hereby granted, free of charge" in note and "Licensed under the MIT license" in script[:300]


def test_every_kind_of_chart_that_is_drawn_is_in_it() -> None:
    """`Figure.add_...` calls of the reporting package; a kind that the bundle lacks would draw nothing."""
    sources = "".join(path.read_text() for path in Path(page.__file__).parent.glob("*.py"))
    classes = {name: getattr(go, name) for name in dir(go)}
    kinds = {n.lower() for n, kind in classes.items() if isinstance(kind, type) and issubclass(kind, BaseTraceType)}
    drawn = set(re.findall(r"figure\.add_([a-z0-9]+)\(", sources)) & kinds
    assert {"scatter"} <= drawn
    drawn |= {"bar"}  # of Optuna's figures
    script = plotly_script()
    assert {kind for kind in drawn if f'moduleType:"trace",name:"{kind}"' in script} == drawn
    assert 'moduleType:"trace",name:"scatter3d"' not in script


def test_a_figure_is_short_json_that_closes_no_script_and_every_light_colour_has_a_dark_one() -> None:
    figure = go.Figure()
    figure.add_scatter(x=[1, 2], y=[1 / 3, None], text=["</script>", "b"], line={"color": LIGHT.ink})
    plot = plot_of("x", "X", "", figure)
    assert "<" not in plot.figure and ">" not in plot.figure
    assert json.loads(plot.figure)["data"][0]["y"] == [0.33333333, None]
    assert {LIGHT.ink, LIGHT.surface, *LIGHT.hues} <= DARK_OF.keys() and not DARK_OF.keys() & {*DARK_OF.values()}
