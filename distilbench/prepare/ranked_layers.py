"""The result of a ranking of layers: its file, its table in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from rich.console import Console
from rich.table import Table

from distilbench.storage.files import write_json

FILE = "layer-ranking.json"
KEPT = "layer-rankings.json"
"""In the prepared folder of a run: the rankings of all of its students, as a list."""
SHOWN = 5
"""Choices that are printed."""


class RankedChoice(BaseModel):
    """Some layers, and how good a start they are: Spearman x 100 on the dev sets, of the states as they are and regressed.

    `residual` is the part of the variance of the teacher's held-out embeddings that the regression leaves; without a labelled
    dev set it takes the place of the two others.
    """

    model_config = ConfigDict(frozen=True)

    layers: tuple[int, ...]
    dev: float | None = None
    regressed: float | None = None
    residual: float | None = None

    @property
    def score(self) -> float:
        """What ranks: the higher the better."""
        return self.regressed if self.regressed is not None else -(self.residual or 0.0)


class LayerRanking(BaseModel):
    """The best choices of `depth` of an encoder's `count` layers, the best first.

    Of many choices (`tried`) the first round read `first_sentences`, and `choices` are the best of them, read again on
    `sentences`. `search` is "greedy" where the best layer was sought first, then the best one to add, and so on.
    """

    model_config = ConfigDict(frozen=True)

    student: str
    encoder: str
    count: int
    depth: int
    search: Literal["every choice", "greedy"]
    by: Literal["dev", "residual"]
    sentences: int
    dev: tuple[str, ...]
    pairs: int
    tried: int
    first_sentences: int = 0
    seconds: float
    choices: tuple[RankedChoice, ...] = Field(min_length=1)

    @property
    def chosen(self) -> tuple[int, ...]:
        """The layers taken."""
        return self.choices[0].layers

    @property
    def summary(self) -> str:
        """How it was done, in one sentence."""
        tried = f"all {self.tried} choices" if self.search == "every choice" else "the best layer, then the best to add"
        again = f", the best {len(self.choices)} again on {self.sentences:,}" if self.first_sentences else ""
        by = (
            f"dev Spearman ({', '.join(self.dev)}) after"
            if self.by == "dev"
            else "what is left on held-out sentences by"
        )
        read = f"{self.first_sentences or self.sentences:,} sentences{again}"
        return (
            f"{self.depth} of the {self.count} layers of {self.encoder}: {tried} on {read}; ranked by {by} a regression on "
            f"the teacher's embeddings; {self.seconds:.0f} s"
        )

    def show(self, console: Console, most: int = SHOWN) -> None:
        """Print the best choices and the one taken."""
        console.print(f"Student {self.student}: {self.summary}", markup=False)
        table = Table(*self.columns, box=None)
        for column in table.columns[1:]:
            column.justify = "right"
        for choice in self.choices[:most]:
            mark = " (taken)" if choice.layers == self.chosen else ""
            table.add_row(named(choice.layers) + mark, *(f"{value:.4g}" for value in self.values(choice)))
        console.print(table)

    @property
    def columns(self) -> tuple[str, ...]:
        """Headings of a table of it."""
        return ("layers", "dev", "dev after regression") if self.by == "dev" else ("layers", "residual")

    def values(self, choice: RankedChoice) -> list[float]:
        """The numbers of a choice below these headings."""
        return [v for v in (choice.dev, choice.regressed, choice.residual) if v is not None]


def named(layers: Sequence[int]) -> str:
    """The layers as `--student layers:` takes them."""
    return ",".join(map(str, layers))


_LIST: TypeAdapter[tuple[LayerRanking, ...]] = TypeAdapter(tuple[LayerRanking, ...])


def keep_rankings(folder: Path, artifacts: Iterable[Path | None]) -> None:
    """Write the rankings of a run's students, that of its own first, from where they were made; others go."""
    rankings = [found for path in artifacts if path is not None and (found := read_ranking(path)) is not None]
    distinct = {(ranking.student, ranking.encoder): ranking for ranking in rankings}
    write_json(folder / KEPT, [ranking.model_dump(mode="json") for ranking in distinct.values()])


def read_rankings(folder: Path) -> tuple[LayerRanking, ...]:
    """What `keep_rankings` has written; nothing where it cannot be read."""
    try:
        return _LIST.validate_json((folder / KEPT).read_bytes())
    except (OSError, ValidationError):
        return ()


def read_ranking(folder: Path) -> LayerRanking | None:
    """The ranking in a folder; None where there is none, or none that can be read."""
    try:
        return LayerRanking.model_validate_json((folder / FILE).read_bytes())
    except (OSError, ValidationError):
        return None
