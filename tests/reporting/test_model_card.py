"""The model card: metadata that the hub's library reads, every score, what is missing, and names that nobody vouches for."""

from __future__ import annotations

import ast
import json
import re
from typing import NamedTuple

import pytest
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from distilbench.records import FROZEN, ON_VECTORS, Score
from distilbench.reporting.board import leaderboard
from distilbench.reporting.loading import load_code
from distilbench.reporting.markdown import render_markdown
from distilbench.reporting.model_card import Snippets, hub_base, model_card
from distilbench.reporting.run_facts import Trainings
from distilbench.storage.files import write_json

HOSTILE = (
    "x\n---\nlicense: mit\n---\n# h <script>alert(1)</script> | [a](javascript:b) `c` ![d](e) *f* https://g.h \u202e"
)


def card_of(records, name, **more):
    board = leaderboard(records)
    (row,) = (row for row in board.rows if name in (row.name, row.record.record_id))
    seed = row.seeds[-1]
    return model_card(board, row, seed, Trainings(records).of(seed.record), Snippets("load()", **more))


def html_of(text):
    return MarkdownIt("commonmark").enable("table").render(ModelCard(text).text)


def test_the_metadata_is_what_the_hub_reads(make_seeded):
    card = ModelCard(card_of(make_seeded(), "MCR2-128-float32", base_model="owner/base"))
    data = card.data
    assert (data.library_name, data.pipeline_tag) == ("sentence-transformers", "sentence-similarity")
    assert {"distilbench", "mcr2", "sentence-transformers"} <= set(data.tags)
    assert data.base_model == "owner/base" and data.model_name == "MCR2-128-float32"
    found = {(r.task_type, r.dataset_name, r.dataset_split, r.metric_type): r.metric_value for r in data.eval_results}
    # quality 74, plus 1 for seed 2; offsets of the sets as in the fixtures
    assert found["semantic-similarity", "STS12", "test", "spearman_cosine"] == pytest.approx(0.67)
    assert found["semantic-similarity", "STSB", "dev", "spearman_cosine"] == pytest.approx(0.79)
    assert found["information-retrieval", "quora", "test", "recall@100"] == pytest.approx(0.85)
    assert found["text-classification", "QQP", "test", "f1"] == pytest.approx(0.81)
    assert len(found) == len(data.eval_results) == 9


def test_scores_have_means_intervals_and_retention(make_seeded):
    text = card_of(make_seeded(), "MCR2-128-int8")
    assert "| Score | This model | 95 % interval | Mean of 3 seeds | Teacher | Of the teacher's |" in text
    # this seed 74, the mean 73 ± 4.303 / sqrt 3, the teacher 81; the average is 1.5 below the quality
    assert "| Test: STS average | 72.50 |  | 71.50 ± 2.48 | 79.50 | 89.9 % |" in text
    assert "| Selection: Dev | 78.00 |  | 77.00 ± 2.48 | 85.00 | 90.6 % |" in text
    assert "codes: of both sentences in STS" in text and "seed 2" in text and "One seed" not in text


def test_one_seed_has_its_bootstrap_intervals_and_says_what_is_missing(make_score):
    record = make_score("only", latency_ms=None, demonstration=True)
    scores = [s.model_copy(update={"low": s.value - 1, "high": s.value + 2}) for s in record.scores if s.task == "sts"]
    extra = Score(task="classification", set="MR", split="test", metric="accuracy", variant="all", value=70.0, n=9)
    text = card_of([record.model_copy(update={"scores": [*scores, extra]})], "only")
    assert "| Score | This model | 95 % interval |\n" in text
    assert "| Test STS: STS12 | 67.00 | 66.00 to 69.00 |" in text
    assert "| Classification: MR | 70.00 |  |" in text  # no interval is none, not 0
    assert "in this form: retrieval, pair tasks." in text and "its latency" in text and "One seed" in text
    assert "in no commit" in text
    assert text.index("**Demonstration only.**") < text.index("## How to load it")
    assert "Demonstration only" not in card_of([make_score("real")], "real")


def test_hostile_names_stay_text(make_score):
    record = make_score(
        "s",
        method="hpd",
        teacher=HOSTILE,
        start=HOSTILE,
        corpus=HOSTILE,
        hyperparameters={HOSTILE: HOSTILE, "nested": {"a": [HOSTILE]}},
        run=HOSTILE,
    )
    changes = {
        "label": HOSTILE,
        "method": HOSTILE,
        "scores": [s.model_copy(update={"set": HOSTILE}) for s in record.scores],
    }
    record = record.model_copy(update=changes)
    text = card_of([record], record.record_id)
    card = ModelCard(text)
    assert card.data.library_name == "sentence-transformers" and card.data.get("license") is None
    assert card.data.model_name.startswith("x --- license: mit --- # h <script>")
    assert all(re.fullmatch("[a-z0-9-]+", tag) for tag in card.data.tags)
    html = html_of(text)
    assert "<script" not in html and "<a " not in html and "<img" not in html and "<em>" not in html
    assert html.count("<h1>") == 1 and "\u202e" not in text
    rows = re.findall(r"<tr>.*?</tr>", html, re.S)
    assert {len(re.findall("<t[dh]", row)) for row in rows} == {2, 3, 4}  # no | made a cell
    assert html.count("<code") == 2 + 6  # our own path, our own block, and the settings of six databases


def test_the_base_is_known_where_it_has_a_hub_id(make_score, tmp_path):
    def base(teacher, student, start):
        write_json(tmp_path / "prepared" / "prepared.json", {"teacher": {"name": teacher}, "student": student})
        return hub_base(tmp_path, make_score("s", start=start))

    assert base("all-MiniLM-L6-v2", "half", FROZEN) == "sentence-transformers/all-MiniLM-L6-v2"
    assert base("owner/teacher", "owner/small", FROZEN) == "owner/teacher"
    assert base("owner/teacher", "owner/small", "small") == "owner/small"
    assert base("owner/teacher", "layers:0,2", "teacher layers:0,2") == "owner/teacher"
    assert base("/somewhere/teacher", "half", FROZEN) == ""
    assert base("../teacher", "half", FROZEN) == base("a/b\nc: d", "half", FROZEN) == ""
    assert hub_base(tmp_path / "nowhere", make_score("s")) == ""


def test_what_a_card_says_of_faisss_codes_and_of_a_student_for_a_code(make_score):
    teacher = make_score("t", 80.0, role="teacher", dim=384, teacher="T")
    peer = make_score(
        "FAISS opq16",
        70.0,
        role="baseline",
        method="faiss",
        dim=384,
        quantisation="opq16",
        bytes_per_vector=16,
        teacher="T",
        model="",
        trial=None,
    )
    summary = card_of([teacher, peer], "FAISS opq16")
    assert (
        "kept in 16 bytes (opq16). It is T itself; its vectors are kept in FAISS's own code opq16: product code"
        in summary
    )
    assert "trained it" not in summary and "layer after it" not in summary
    params = {"output_dim": 32, "bits": 4}
    common = {"dim": 32, "hyperparameters": params, "teacher": "T"}
    coded = make_score("s", 72.0, record_id="coded", quantisation="int4", bytes_per_vector=16, **common)
    whole = make_score("s", 73.0, record_id="whole", **common)
    records = [teacher, coded, whole]
    assert "It was trained for the code int4." in card_of(records, "coded")
    assert "It was trained for the code int4, which is another form of it." in card_of(records, "whole")


@pytest.mark.parametrize("quantisation", ["float32", "int8"])
@pytest.mark.parametrize("start", ["teacher layers:0,2", ON_VECTORS])
@pytest.mark.parametrize("documents", ["", "T", "T, its PCA"])
@pytest.mark.parametrize("table", ["int8", "int4"])
def test_what_loads_a_row_is_python(make_score, quantisation, start, documents, table):
    form = {"quantisation": quantisation, "start": start, "documents": documents, "teacher": "T"}
    text = load_code(make_score("s", hyperparameters={"table": table}, **form), HOSTILE, HOSTILE, cut=True)
    assigned = [node.targets[0].id for node in ast.parse(text).body if isinstance(node, ast.Assign)]
    assert assigned[-1] == ("vectors" if quantisation == "float32" else "codes") and "model" in assigned


class Setting(NamedTuple):
    database: str
    sent: str
    text: str
    fits: str


def database_settings(code, width, size):
    rows = render_markdown("databases.md.j2", code=code, width=width, size=size).splitlines()
    assert all(row.startswith("| ") and row.endswith(" |") for row in rows)
    return [Setting(*(cell.strip("`") for cell in row[2:-2].split(" | "))) for row in rows]


def dimensions(setting):
    """Every number of dimensions that the settings of a database name."""
    if setting.text.startswith("{"):
        named = json.loads(setting.text)
        return [named["vectors"]["size"]] if "vectors" in named else [named.get(k) for k in NAMED if k in named]
    return [int(n) for n in re.findall(r"\((\d+)\)", setting.text)]


NAMED = ("dim", "dims", "dimension")
EVERYWHERE = ("FAISS", "Qdrant", "Milvus", "Elasticsearch", "OpenSearch", "pgvector")


@pytest.mark.parametrize(
    ("code", "width", "size", "listed"),
    [
        ("float32", 24, 96, EVERYWHERE),
        ("float32", 4001, 16004, EVERYWHERE[:-1]),  # above what pgvector's graph holds
        ("int8", 24, 24, EVERYWHERE[:-1]),
        ("int4", 24, 12, EVERYWHERE[:-1]),
        ("int4", 23, 12, ("FAISS", "Qdrant", "Milvus", "OpenSearch")),  # Elasticsearch packs two dimensions
        ("int3", 24, 9, ("FAISS",)),
        ("int2", 24, 6, ("FAISS", "Qdrant", "OpenSearch")),
        ("binary", 20, 3, EVERYWHERE),
        ("opq8", 24, 8, ("FAISS",)),
    ],
)
def test_databases_are_those_that_have_the_code(code, width, size, listed):
    settings = {s.database: s for s in database_settings(code, width, size)}
    assert tuple(settings) == listed
    for database, setting in settings.items():
        bits = code == "binary" and database not in ("FAISS", "Qdrant")
        assert setting.sent == ("codes" if bits else "vectors")
        if database != "FAISS":
            assert dimensions(setting) == [8 * size if bits else width]
    assert settings["FAISS"].text == (f"faiss.IndexFlatIP({width})" if code == "float32" else FAISS_FILE.format(code))


FAISS_FILE = "quantisation-{}.faiss"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("int8", {"Qdrant": "int8", "Milvus": "SQ8", "Elasticsearch": "int8_hnsw", "OpenSearch": '"sq"'}),
        ("int4", {"Qdrant": "bits4", "Milvus": "SQ4U", "Elasticsearch": "int4_hnsw", "OpenSearch": '"bits": 4'}),
        ("int2", {"Qdrant": "bits2", "OpenSearch": '"bits": 2'}),
        ("binary", {"Milvus": "HAMMING", "Elasticsearch": '"bit"', "OpenSearch": "hamming", "pgvector": "bit_hamming"}),
        ("float32", {"pgvector": "vector_cosine_ops", "Elasticsearch": '"hnsw"', "Milvus": '"HNSW"'}),
    ],
)
def test_a_database_is_asked_for_as_many_bits(code, words):
    settings = {s.database: s for s in database_settings(code, 64, 8)}
    assert all(word in settings[database].text for database, word in words.items())
    own = code in ("int8", "int4", "int2")  # what the server makes of the vectors, it fits
    assert all((s.fits != "nothing") == own for s in settings.values() if s.database not in ("FAISS", "Qdrant"))


def test_the_card_has_a_row_for_each_database(make_score):
    record = make_score("s", 72.0, dim=64, quantisation="binary", bytes_per_vector=8)
    html = html_of(card_of([record], record.record_id))
    for setting in database_settings("binary", 64, 8):
        assert f"<td>{setting.database}</td>" in html
    assert "embedding bit(64)" in html and "codes.view" in html
