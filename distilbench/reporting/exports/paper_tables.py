"""The tables of the four papers as data: their columns, their groups of rows, and what records do not have of them."""

from __future__ import annotations

from typing import Literal, NamedTuple

from distilbench.reporting.published import WHOLE, ScoreKey

UNCOMPRESSED = ""
"""The method of a teacher, or of an encoder as it came."""
View = Literal["rows", "index", "clusters", "all pairs", "catalogue"]
TINYBERT, MINILM = "TinyBERT_L-4_H-312_v2", "MiniLM-L6-H384-uncased"


class PaperColumn(NamedTuple):
    """A column; a cell of several keys is "86.7/85.9". Values are multiplied by `scale` and shown with `digits`."""

    title: str
    keys: tuple[ScoreKey, ...]
    digits: int = 2
    scale: float = 1.0
    shown: Literal["number", "millions", "time"] = "number"


class Block(NamedTuple):
    """A group of rows: those of `methods`, with that student or teacher, and those settings; "" and () are any.

    A setting is a hyper-parameter with its value, or with True or False: whether it is there and neither 0 nor false.
    """

    title: str
    methods: tuple[str, ...]
    student: str = ""
    teacher: str = ""
    settings: tuple[tuple[str, object], ...] = ()


class PaperTable(NamedTuple):
    """A table. A row goes to the first block that it fits, published or measured; one that fits none is not in it.

    `view`: what a line is of: a row, one of its IVF indexes, one way of clustering with it, or a part of what it costs.
    `named_parameters` are hyper-parameters that a measured row names.
    """

    key: str
    paper: str
    number: str
    title: str
    columns: tuple[PaperColumn, ...]
    blocks: tuple[Block, ...]
    notes: tuple[str, ...] = ()
    view: View = "rows"
    named_parameters: tuple[str, ...] = ()


def _sts(variant: str = "all", digits: int = 2, scale: float = 1.0) -> dict[str, PaperColumn]:
    names = {**{f"STS{year}": f"STS{year}" for year in range(12, 17)}, "STSB": "STS-B", "SICK": "SICK-R"}
    return {
        name: PaperColumn(
            title, (ScoreKey("sts", name, "spearman", "all" if name == "STSB" else variant),), digits, scale
        )
        for name, title in names.items()
    }


def _accuracy(name: str, digits: int = 2, title: str = "") -> PaperColumn:
    return PaperColumn(title or name, (ScoreKey("classification", name, "accuracy"),), digits)


def _pair(
    task: str, name: str, metrics: tuple[str, ...], title: str = "", variants: tuple[str, ...] = ("all",)
) -> PaperColumn:
    return PaperColumn(title or name, tuple(ScoreKey(task, name, m, v) for m in metrics for v in variants), 1)


_AVERAGE = PaperColumn("Avg.", (ScoreKey("sts", WHOLE, "spearman"),))
_SEVEN = (*_sts().values(), _AVERAGE)
_DIM = PaperColumn("Dim", (ScoreKey("encoder", "", "dim"),), 0)
_PARAMS = PaperColumn("Params", (ScoreKey("encoder", "", "parameters"),), 0, shown="millions")
_SPEED = PaperColumn("Speed", (ScoreKey("encoder", "", "sentences/s"),), 0)
_MARCO = (
    PaperColumn("MRR@10", (ScoreKey("retrieval", "msmarco", "mrr@10"),)),
    PaperColumn("Recall@1000", (ScoreKey("retrieval", "msmarco", "recall@1000"),)),
)

_STS_NOTE = (
    "Spearman x 100; STS12-16 with all subsets concatenated. Measured on the text as it is; the papers' is tokenised and "
    "lower-cased. An average that lacks one of the seven sets is missing."
)
_PRINTED_NOTE = "Printed averages are as printed: of {} they are not the means of the printed sets."
_HPD_MISPRINT = _PRINTED_NOTE.format("HPD-MiniLM-H256 (by 0.13)")
_IBKD_MISPRINT = _PRINTED_NOTE.format(
    "MiniLM-CRD (by 0.45), TinyBERT-IBKD (0.43), TinyBERT-HPD_ft (0.26) and MiniLM-IBKD_ft (0.14)"
)
_SPEED_NOTE = "Speed: sentences per second; published on a GPU, measured 32 at a time on the machine of the run."
_MARCO_NOTE = "Records have no Recall@1000 and, for most sets, no index of MS MARCO's size."
_WMEAN_NOTE = "Spearman; STS12-16 as means over each year's subsets, weighted by their sizes."
_PCA_NOTE = "PCA of the same teacher stands among the measured rows; the paper leaves it out."
_GLUE_NOTE = (
    "Published on GLUE's test sets, measured on those of the data folder. MNLI is matched / mismatched, here MNLI's two dev "
    "sets, of which the matched one may have chosen the student. The paper's two columns of relative changes follow from AVG."
)

_PLAIN = (("ft_epochs", False), ("whiten_from", False))
_WITH_AUG = (*_PLAIN, ("augmentation", True))
_WITHOUT_AUG = (*_PLAIN, ("augmentation", False))


def _backbones(
    methods: tuple[str, ...], first: str, settings: tuple[tuple[str, object], ...] = ()
) -> tuple[Block, ...]:
    return (
        Block(first, (UNCOMPRESSED,)),
        Block("Backbone for compact model: TinyBERT", methods, TINYBERT, settings=settings),
        Block("Backbone for compact model: MiniLM", methods, MINILM, settings=settings),
        Block("Other backbones", methods, settings=settings),
    )


def _augmented() -> tuple[Block, ...]:
    return (
        Block("HPD-MiniLM", ("hpd",), MINILM, settings=_WITH_AUG),
        Block("HPD-MiniLM-wo-Aug", ("hpd",), MINILM, settings=_WITHOUT_AUG),
        Block("HPD-TinyBERT", ("hpd",), TINYBERT, settings=_WITH_AUG),
        Block("HPD-TinyBERT-wo-Aug", ("hpd",), TINYBERT, settings=_WITHOUT_AUG),
        Block("HPD, other backbones", ("hpd",), settings=_WITH_AUG),
        Block("HPD-wo-Aug, other backbones", ("hpd",), settings=_WITHOUT_AUG),
    )


def _teachers() -> tuple[Block, ...]:
    methods = (UNCOMPRESSED, "mcr2", "pca")
    names = ("all-mpnet-base-v2", "all-MiniLM-L6-v2")
    return (*(Block(name, methods, teacher=name) for name in names), Block("Other encoders", methods))


def _cost(setup: str, metric: str) -> tuple[ScoreKey, ...]:
    return (ScoreKey("efficiency", setup, metric),)


_HPD = (
    PaperTable(
        "hpd-1",
        "HPD",
        "1",
        "HPD, table 1: sentence embeddings on STS tasks",
        (*_SEVEN, _PARAMS._replace(title="Size"), _DIM, _SPEED),
        _backbones(("contrastive", "hpd"), "Large models", (("ft_epochs", False),)),
        (_STS_NOTE, _SPEED_NOTE),
    ),
    PaperTable(
        "hpd-2",
        "HPD",
        "2",
        "HPD, table 2: data augmentation and dimensions",
        (_DIM, _sts()["STSB"], _AVERAGE),
        _augmented(),
        (_STS_NOTE,),
    ),
    PaperTable(
        "hpd-3",
        "HPD",
        "3",
        "HPD, table 3: semantic retrieval on Quora",
        (
            PaperColumn("MRR", (ScoreKey("index", "quora-duplicates", "mrr@10", "ivf"),), 3, 0.01),
            PaperColumn("Time", (ScoreKey("index", "quora-duplicates", "ms per 1,000 queries", "ivf"),), 1),
            PaperColumn("Mem", (ScoreKey("index", "quora-duplicates", "MB", "ivf"),)),
        ),
        (
            Block("", ("hpd",), TINYBERT),
            Block("", ("hpd",), MINILM),
            *(Block("", (UNCOMPRESSED,)), Block("", ("hpd",))),
        ),
        (
            "IVF indexes of FAISS; MRR@10, ms per 1,000 queries, MB of the index. Every question2 is a document, question1 "
            "asks. Times and sizes depend on the documents: compare measured rows with each other.",
        ),
        view="index",
    ),
    PaperTable(
        "hpd-4",
        "HPD",
        "4",
        "HPD, table 4: augmentation, dimensions and whitening on STS tasks",
        (_DIM, *_SEVEN),
        (*_augmented(), Block("With whitening", ("hpd",), settings=(("ft_epochs", False), ("whiten_from", True)))),
        (_STS_NOTE, _HPD_MISPRINT),
    ),
)

_CLUSTERS = tuple(ScoreKey("clusters", "quora", m) for m in ("accuracy", "encoding s", "clustering s", "total s"))
_WMEAN = _sts("wmean", 3, 0.01)
_MCR2 = (
    PaperTable(
        "mcr2-1",
        "MCR2",
        "1",
        "MCR2, table 1: semantic retrieval within clusters",
        (
            PaperColumn("accuracy", _CLUSTERS[:1], 3, 0.01),
            *(PaperColumn(k.metric.removesuffix(" s"), (k,), shown="time") for k in _CLUSTERS[1:]),
        ),
        _teachers(),
        (
            "Share of queries with a duplicate in their own cluster, and the time (h:mm:ss, or s). Records have no time for "
            "encoding all sentences, so no total; measured clustering is the fit of k-means and the assignment.",
        ),
        view="clusters",
    ),
    PaperTable(
        "mcr2-2",
        "MCR2",
        "2",
        "MCR2, table 2: semantic textual similarity",
        (_DIM, _WMEAN["STSB"], *(_WMEAN[f"STS{year}"] for year in range(12, 17))),
        _teachers(),
        (_WMEAN_NOTE, _PCA_NOTE),
    ),
    PaperTable(
        "mcr2-3",
        "MCR2",
        "3",
        "MCR2, table 3: sentence classification",
        (_DIM, *map(_accuracy, ("SST2", "SST5", "MR", "CR", "SUBJ", "MPQA", "TREC", "MRPC"))),
        _teachers(),
        ("Accuracy x 100 of a logistic regression on frozen embeddings (SentEval's protocol).", _PCA_NOTE),
    ),
    PaperTable(
        "mcr2-4",
        "MCR2",
        "4",
        "MCR2, table 4: knowledge distillation",
        (_DIM, *_SEVEN),
        (Block("MCR2", ("mcr2_distil",)), Block("PCA (HPD without augmentation)", ("hpd",), settings=_WITHOUT_AUG)),
        (_STS_NOTE,),
    ),
)

_IBKD_METHODS = ("contrastive", "mse", "hpd", "crd", "ibkd")
_IBKD_OTHER = (Block("Teachers", (UNCOMPRESSED,)), Block("Students", ("hpd", "ibkd")))
_IBKD = (
    PaperTable(
        "ibkd-2",
        "IBKD",
        "2",
        "IBKD, table 2: STS datasets",
        (*_SEVEN, _PARAMS, _DIM._replace(title="Dimension")),
        _backbones(_IBKD_METHODS, "Teachers"),
        (_STS_NOTE, _IBKD_MISPRINT),
        named_parameters=("kernel", "beta1", "beta2"),
    ),
    PaperTable(
        "ibkd-3",
        "IBKD",
        "3",
        "IBKD, table 3: MS MARCO passages",
        (
            *_MARCO,
            *(_DIM._replace(title="Dimension"), _PARAMS, _SPEED),
            PaperColumn("Memory, GB", (ScoreKey("index", "msmarco", "GB", "flat"),), 1),
        ),
        _backbones(_IBKD_METHODS, "Teachers"),
        (_MARCO_NOTE, _SPEED_NOTE),
        named_parameters=("kernel", "beta1", "beta2"),
    ),
    PaperTable(
        "ibkd-4",
        "IBKD",
        "4",
        "IBKD, table 4: kernels",
        (_AVERAGE._replace(title="STS"), _MARCO[0]._replace(title="DR")),
        (Block("", ("ibkd",), settings=(("ft_epochs", True),)),),
        ("STS: average Spearman x 100 of the seven sets; DR: MRR@10 x 100 on MS MARCO, there of another model.",),
        named_parameters=("kernel", "beta1", "beta2"),
    ),
    PaperTable(
        "ibkd-6",
        "IBKD",
        "6",
        "IBKD, table 6: STS with other teachers",
        (_AVERAGE, _PARAMS, _DIM._replace(title="Dimension")),
        _IBKD_OTHER,
        ("The published rows have SimCSE-BERT-large as their teacher.", _STS_NOTE),
    ),
    PaperTable(
        "ibkd-7",
        "IBKD",
        "7",
        "IBKD, table 7: dense retrieval with other teachers",
        (*_MARCO, _PARAMS, _DIM._replace(title="Dimension")),
        _IBKD_OTHER,
        (
            "The published rows have RetroMAE as their teacher. The paper prints two rows each as TinyBERT-HPD and "
            "TinyBERT-IBKD; by place and value the second is the fine-tuned one.",
            _MARCO_NOTE,
        ),
    ),
)

_TASKED = ("MR", "CR", "SUBJ", "MPQA")
_DSE = (
    PaperTable(
        "dse-1",
        "DSE",
        "1",
        "DSE, table 1: sentence-pair tasks",
        (
            _pair("pairs", "MNLI", ("accuracy",), variants=("matched", "mismatched")),
            _pair("pairs", "QQP", ("f1", "accuracy")),
            _pair("pairs", "QNLI", ("accuracy",)),
            _pair("pairs", "MRPC", ("f1", "accuracy")),
            _pair("pairs", "STSB", ("pearson", "spearman"), "STS-B"),
            PaperColumn("AVG", (ScoreKey("pairs", WHOLE, "mean"),)),
        ),
        (
            Block("Cross Attentive Models", ("cross-encoder",)),
            Block("Sentence Embedding Models", (UNCOMPRESSED, "dse")),
        ),
        (_GLUE_NOTE,),
    ),
    PaperTable(
        "dse-2",
        "DSE",
        "2",
        "DSE, table 2: universal sentence embeddings",
        (
            *(_accuracy(name, 1) for name in _TASKED),
            *(_accuracy("SST2", 1, "SST"), _accuracy("TREC", 1)),
            _pair("pair-probe", "MRPC", ("f1", "accuracy")),
            PaperColumn("SICK-R", (ScoreKey("pair-probe", "SICK", "pearson"),), 3, 0.01),
            _accuracy("SICK-E", 1),
            _pair("pair-probe", "STSB", ("pearson", "spearman"), "STS-B"),
            PaperColumn("AVG", (ScoreKey("pair-probe", WHOLE, "mean"),), 1),
        ),
        (Block("", (UNCOMPRESSED, "dse")),),
        (
            "Linear models on frozen embeddings: accuracy, for MRPC F1 / accuracy, SICK-R Pearson, STS-B Pearson / Spearman. "
            "Measured pair tasks (MRPC, SICK-R, STS-B) are of the pair probe, whose protocol is not SentEval's.",
        ),
    ),
    PaperTable(
        "dse-3",
        "DSE",
        "3",
        "DSE, table 3: 1M pairs of 1,000 sentences",
        (
            PaperColumn("Speedup factor", _cost("all pairs", "speedup"), 0),
            PaperColumn("Time", _cost("all pairs", "s"), shown="time"),
            PaperColumn("Max batch size", _cost("all pairs", "batch"), 0),
            PaperColumn("Time / Max batch size", _cost("all pairs", "s per batch"), shown="time"),
        ),
        (Block("", ("cross-encoder", "dse")),),
        (
            "Measured: 1,000 sentences at the recorded rate of batches of 32. Records have no times of cross-encoders and "
            "pair heads: `distilbench efficiency` measures both set-ups of the paper.",
        ),
        view="all pairs",
    ),
    PaperTable(
        "dse-4",
        "DSE",
        "4",
        "DSE, table 4: one query against a catalogue",
        (
            PaperColumn("Speedup factor", _cost("catalogue", "speedup"), 0),
            PaperColumn("Time", _cost("catalogue", "s"), shown="time"),
        ),
        (Block("", ("cross-encoder", "dse", UNCOMPRESSED)),),
        (
            "Published: 100,000 sentences. Measured: ψ is the median time to embed one sentence, f a search of the exact "
            "index by cosine over the documents named, not the pair head; there is no time of a "
            "cross-encoder, so no speed-up.",
        ),
        view="catalogue",
    ),
)

TABLES: tuple[PaperTable, ...] = (*_HPD, *_MCR2, *_IBKD, *_DSE)
