"""What a pair costs: a cross-encoder beside a student and its head, in the two set-ups of the DSE paper (section 4.3).

    python benchmarks/efficiency.py --student runs/NAME/students/dse-d1152-trial3-seed0 --cross-encoder FOLDER --data DIR
        [--sentences 1000] [--catalogue 100000] [--seconds 20] [--threads N] [--json FILE]

all pairs   every ordered pair of n sentences. The cross-encoder reads each pair; the student embeds each sentence once and
            applies its head to each pair.
catalogue   one query against N sentences. The cross-encoder reads N pairs; the student embeds the query and applies its
            head N times, the catalogue's embeddings being there beforehand: they are told, but not counted.

Every number says whether it was measured at its full size or extrapolated, and from what. Tokenisation is counted for both.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional

from distilbench.data.folder import Limits, folder_corpus
from distilbench.encoders.encoder import default_device
from distilbench.encoders.pair_head import PairHead, PairScorer, load_pair_scorer
from distilbench.errors import InputError
from distilbench.machine import torch_threads
from distilbench.prepare.cross_encoder import TaskCrossEncoder, load_cross_encoder
from distilbench.storage.files import write_json

PUBLISHED = {"all pairs": 934.0, "catalogue": 13594.0}
"""Speed-ups of the paper's tables 3 and 4: BERT-large as both, one V100."""

BLOCK = 256
"""Pairs or sentences that are tokenised, sorted by length and read together."""

ROWS = 8192
"""Embeddings that the head reads at once."""

PATIENCE = 10
"""The student may take this many times `seconds` for a part before the rest of it is extrapolated."""

QUERIES = (3, 20)
"""How many at least and at most, as time allows, have their median taken in the set-up `catalogue`."""


@dataclass(frozen=True)
class Timing:
    """A part of a set-up: `measured` of its `total` pieces of work took `measured_s` seconds."""

    setup: str
    model: str
    work: str
    unit: str
    total: int
    measured: int
    measured_s: float
    counted: bool = True
    note: str = ""

    @property
    def extrapolated(self) -> bool:
        """Whether fewer pieces were measured than there are."""
        return self.measured < self.total

    @property
    def total_s(self) -> float:
        """Seconds for all pieces."""
        return self.measured_s * self.total / self.measured

    @property
    def how(self) -> str:
        """Where the number is from."""
        if self.extrapolated:
            return f"extrapolated from {self.measured:,} {self.unit} in {_readable(self.measured_s)} s"
        return "measured" + (f", {self.note}" if self.note else "")


@dataclass(frozen=True)
class Efficiency:
    """All timings of one cross-encoder and one student on one machine."""

    student: str
    cross_encoder: str
    device: str
    threads: int
    sentences: int
    catalogue: int
    timings: tuple[Timing, ...]

    def seconds(self, setup: str, model: str) -> float:
        """What is counted of a model in a set-up."""
        return sum(t.total_s for t in self.timings if (t.setup, t.model) == (setup, model) and t.counted)

    def speedup(self, setup: str) -> float:
        """How many times faster the student is."""
        return self.seconds(setup, "cross-encoder") / self.seconds(setup, "student")

    def to_json(self) -> dict[str, Any]:
        """Everything, JSON-able, with what follows from the timings."""
        timings = [
            {**asdict(t), "total_s": t.total_s, "how": "extrapolated" if t.extrapolated else "measured"}
            for t in self.timings
        ]
        speedups = {
            setup: {"speedup": self.speedup(setup), "published": published} for setup, published in PUBLISHED.items()
        }
        return {**asdict(self), "timings": timings, "speedups": speedups}

    def text(self, width: int = 120) -> str:
        """A table for the terminal."""
        table = Table(
            title=f"Cross-encoder {self.cross_encoder} and student {self.student} on {self.device}, {self.threads} threads",
            title_justify="left",
        )
        for column in ("set-up", "model", "work"):
            table.add_column(column)
        table.add_column("seconds", justify="right")
        table.add_column("how")
        for setup, published in PUBLISHED.items():
            for t in self.timings:
                if t.setup == setup:
                    seconds = _readable(t.total_s) if t.counted else f"({_readable(t.total_s)})"
                    table.add_row(setup, t.model, f"{t.work} {t.total:,} {t.unit}", seconds, t.how)
            table.add_row(
                setup,
                "speed-up",
                " / ".join(f"{_readable(self.seconds(setup, model))} s" for model in ("cross-encoder", "student")),
                f"{self.speedup(setup):,.0f} x",
                f"the paper: {published:,.0f} x (BERT-large, V100)",
                end_section=True,
            )
        out = StringIO()
        console = Console(file=out, width=width)
        console.print(table)
        console.print("Seconds in brackets are not counted.", highlight=False)
        return out.getvalue()


def _readable(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.3g}"


def efficiency_report(
    student: Path,
    cross_encoder: Path,
    texts: Sequence[str],
    *,
    sentences: int = 1000,
    catalogue: int = 100_000,
    seconds: float = 20.0,
    threads: int | None = None,
    seed: int = 0,
) -> Efficiency:
    """Measure both models on `sentences` of `texts` (distinct, drawn with `seed`), on the GPU where there is one.

    The cross-encoder reads random pairs for about `seconds`. The student runs at full size unless a part takes ten times
    as long. The head's time does not depend on what it reads, so the catalogue repeats the embeddings of the sentences
    drawn. `threads` are torch's (None: as they are); on a GPU both models run in bfloat16.
    """
    texts = list(dict.fromkeys(texts))
    if sentences > len(texts):
        raise InputError(
            f"--sentences {sentences}: the corpus has {len(texts)} distinct sentences; expected at most as many"
        )
    device = default_device()
    scorer, crosser = load_pair_scorer(student, device), load_cross_encoder(cross_encoder, None, device)
    with torch_threads(threads):
        rng = np.random.default_rng(seed)
        chosen = [texts[i] for i in rng.choice(len(texts), sentences, replace=False)]
        pairs, pairs_s = _cross_encode(crosser, chosen, seconds, rng)
        timings = _all_pairs(scorer, chosen, seconds * PATIENCE, pairs, pairs_s)
        timings += _catalogue(scorer, chosen, catalogue, seconds, pairs, pairs_s, timings[1])
        used = torch.get_num_threads()
    return Efficiency(student.name, cross_encoder.name, device, used, sentences, catalogue, tuple(timings))


def _cross_encode(
    crosser: TaskCrossEncoder, texts: Sequence[str], seconds: float, rng: np.random.Generator
) -> tuple[int, float]:
    """Pairs read in about `seconds`, and the seconds it took; all of them, each once, where the time is enough."""
    n, device = len(texts), crosser.model.device.type
    crosser.logits(texts[:8], texts[:8])
    pair_numbers = rng.permutation(n * n) if n <= 2000 else rng.integers(0, n * n, size=2000**2)
    done, began = 0, time.perf_counter()
    while done < n * n and (not done or time.perf_counter() - began < seconds):
        block = pair_numbers[np.arange(done, min(done + BLOCK, n * n)) % len(pair_numbers)]
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu"):
            crosser.logits([texts[i] for i in block // n], [texts[i] for i in block % n])
        done += len(block)
    return done, time.perf_counter() - began


def _all_pairs(scorer: PairScorer, texts: Sequence[str], limit: float, pairs: int, pairs_s: float) -> list[Timing]:
    setup, n = "all pairs", len(texts)
    scorer.embed(texts[:8])
    began, parts = time.perf_counter(), list[Tensor]()
    for start in range(0, n, BLOCK):
        parts.append(scorer.embed(texts[start : start + BLOCK]))
        if time.perf_counter() - began > limit:
            break
    embed_s, e_Nd = time.perf_counter() - began, torch.cat(parts)
    embedded = len(e_Nd)
    e_Nd = _repeated(e_Nd, n)
    _compare(scorer, e_Nd[0], e_Nd[:8])
    began, compared = time.perf_counter(), 0
    while compared < n and (not compared or time.perf_counter() - began < limit):
        _compare(scorer, e_Nd[compared], e_Nd)
        compared += 1
    return [
        Timing(setup, "cross-encoder", "read", "pairs", n * n, pairs, pairs_s),
        Timing(setup, "student", "embed", "sentences", n, embedded, embed_s),
        Timing(setup, "student", "apply the head to", "pairs", n * n, compared * n, time.perf_counter() - began),
    ]


def _catalogue(
    scorer: PairScorer,
    texts: Sequence[str],
    size: int,
    limit: float,
    pairs: int,
    pairs_s: float,
    embedding: Timing,
) -> list[Timing]:
    setup, (least, most) = "catalogue", QUERIES
    e_Nd = _repeated(scorer.embed(texts[:BLOCK]), size)
    embed_s, head_s, began = list[float](), list[float](), time.perf_counter()
    for query in texts[:most]:
        start = time.perf_counter()
        u_d = scorer.embed([query])[0]
        middle = time.perf_counter()
        _compare(scorer, u_d, e_Nd)
        embed_s.append(middle - start)
        head_s.append(time.perf_counter() - middle)
        if len(head_s) >= least and time.perf_counter() - began > limit:
            break
    read, embedded = min(pairs, size), min(embedding.measured, size)
    note = f"median of {len(head_s)} queries"
    return [
        Timing(setup, "cross-encoder", "read", "pairs", size, read, pairs_s * read / pairs, note="on random pairs"),
        Timing(setup, "student", "embed", "query", 1, 1, statistics.median(embed_s), note=note),
        Timing(setup, "student", "apply the head to", "pairs", size, size, statistics.median(head_s), note=note),
        Timing(
            setup,
            "student",
            "embed beforehand",
            "sentences",
            size,
            embedded,
            embedding.measured_s * embedded / embedding.measured,
            counted=False,
        ),
    ]


def _compare(scorer: PairScorer, u_d: Tensor, e_Nd: Tensor) -> None:
    """The head's outputs of one embedding with each of N, as numbers on the CPU."""
    with torch.inference_mode():
        torch.cat([against(scorer.head, u_d, part) for part in e_Nd.split(ROWS)]).cpu()  # type: ignore[no-untyped-call]


def against(head: PairHead, u_d: Tensor, v_Nd: Tensor) -> Tensor:
    """The head's outputs of one embedding with each of N, N x C, at half of its multiplications.

    W1 u is one vector, and W2 v + W3 (u*v) = (W2 + W3 diag(u)) v is one product.
    """
    if head.kind == "dot":
        return head.outer((v_Nd @ u_d / head.width).unsqueeze(-1))
    w1, w2, w3, w4 = head.inner.weight.chunk(4, dim=1)
    hidden_NH = functional.linear(v_Nd, w2 + w3 * u_d, head.inner.bias + w1 @ u_d)
    hidden_NH = hidden_NH + functional.linear((v_Nd - u_d).abs(), w4)
    return head.outer(functional.relu(hidden_NH))


def _repeated(e_Nd: Tensor, count: int) -> Tensor:
    """`count` rows, the given ones over and over."""
    return e_Nd[torch.arange(count, device=e_Nd.device) % len(e_Nd)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--student", type=Path, required=True, help="a dse student's folder")
    parser.add_argument("--cross-encoder", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="the data folder whose sentences are read")
    parser.add_argument("--sentences", type=int, default=1000, help="all pairs of so many sentences")
    parser.add_argument("--catalogue", type=int, default=100_000, help="one query against so many sentences")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long the cross-encoder is measured")
    parser.add_argument("--threads", type=int, help="of torch; default: as it chooses")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    chosen = parser.parse_args()
    measured = efficiency_report(
        chosen.student,
        chosen.cross_encoder,
        folder_corpus(chosen.data, Limits()).sentences,
        sentences=chosen.sentences,
        catalogue=chosen.catalogue,
        seconds=chosen.seconds,
        threads=chosen.threads,
    )
    if chosen.json:
        write_json(chosen.json, measured.to_json())
    print(measured.text())


if __name__ == "__main__":
    main()
