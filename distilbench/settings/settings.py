"""Settings of a run, as the command line gives them."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from distilbench.cluster.resources import TrialShare
from distilbench.data.folder import Limits
from distilbench.data.text import Texts, TextSettings
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.student import AUTO
from distilbench.records import Quantisation
from distilbench.settings.augment import AugmentSettings
from distilbench.settings.choices import QUALITY, Backend, Searcher, SpaceBudget, Stopping, Stored
from distilbench.settings.pool import AS_FIT, PoolSize
from distilbench.storage.remote import Remote
from distilbench.storage.store import ArtifactStore


class PlaceSettings(BaseModel):
    """What is read, where it is kept, and what works on it: of every command that makes a leaderboard."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, extra="forbid")

    data: Path | None = None
    """A data folder; None is the built-in demonstration corpus."""
    limits: Limits = Limits()
    backend: Backend = "torch"
    """What runs the teacher, or the models that are evaluated."""
    name: str | None = None
    """The run's name; None is made from what is run, corpus and teacher."""
    runs: Path = Path("runs")
    reports: Path = Path("reports")
    store: Path
    pool: PoolSize = AS_FIT
    """Workers that prepare data."""
    address: str | None = None
    """A Ray cluster; None starts one on this machine."""
    cpus: int | None = Field(default=None, ge=1)
    """CPUs of the cluster started on this machine; None is all."""
    dashboard: bool = True
    storage: str | None = None
    """The URI of a prefix in object storage, through which machines without a shared disk work together; None: the disk."""

    @property
    def remote(self) -> Remote | None:
        """That prefix."""
        return Remote(self.storage) if self.storage else None

    @property
    def artifacts(self) -> ArtifactStore:
        """The store of artifacts, here and in the storage."""
        return ArtifactStore(self.store, self.remote / "store" if self.remote else None)


class RunSettings(PlaceSettings):
    """What a sweep and a comparison both decide."""

    text: tuple[str, ...] = ()
    """Sources of unlabelled training sentences, beside the data folder's or instead of the built-in ones."""
    text_settings: TextSettings = TextSettings()
    """How they, and a data folder's `unlabeled/`, are read."""
    corpus_size: int = 4000
    """Training pairs of the built-in corpus."""
    augment: AugmentSettings = AugmentSettings()
    """How augmented sentences are made, for the methods that train on them."""
    min_cosine: float | None = Field(default=None, ge=-1, le=1)
    """Of an augmented sentence to its source, by the teacher; None keeps all."""
    teacher: EncoderSpec = EncoderSpec("all-MiniLM-L6-v2")
    cross_encoder: str | None = None
    """A fine-tuned cross-encoder's folder, for DSE; None fine-tunes one from the teacher's encoder."""
    cross_encoder_lr: float = Field(default=2e-5, gt=0, le=1)
    cross_encoder_epochs: float = Field(default=3, gt=0)
    """Of that fine-tuning."""
    vectors: Stored = "float16"
    """Precision in which the teacher's embeddings are stored."""
    student: str = AUTO
    """Where an encoder student starts, as `distilbench.encoders.student` reads it."""
    pooling: str | None = None
    """How an encoder student pools; None is as the encoder that it is made of."""
    quantisations: tuple[Quantisation, ...] = ("int8", "binary")
    """Every row is scored also in these."""
    seed: int = Field(default=0, ge=0)
    share: TrialShare = TrialShare()
    """Of the cluster, for one trial."""

    @property
    def texts(self) -> Texts:
        """The sources and how to read them."""
        return Texts(self.text, self.text_settings)


class SpaceSettings(RunSettings):
    """What says where search spaces are."""

    space: Path | None = None
    """A search space, or a folder of METHOD.yaml; None is the user's `search_spaces/METHOD.yaml`, or the package's."""
    budget: SpaceBudget | None = None
    """Which of the package's; None is small for the built-in corpus and real for a data folder."""


class PrepareSettings(SpaceSettings):
    """Everything that one `prepare` command decides."""

    method: str | None = None
    """Prepare what a sweep of it reads; None is embeddings, PCA, tokens, and augmented sentences where asked for."""


class SweepSettings(SpaceSettings):
    """Everything that one `sweep` command decides."""

    methods: tuple[str, ...]
    """One after the other, each in a study of its own; () is all that the data allow."""
    trials: int | None = Field(default=None, ge=1)
    """Trials in all, of all methods together; None is the search spaces' numbers."""
    time_budget: float | None = Field(default=None, gt=0)
    """Seconds from the start to the leaderboard; None is no limit."""
    searcher: Searcher | None = None
    """None is the search space's, as `stopping`, `top` and `confirm_seeds`."""
    stopping: Stopping | None = None
    top: int | None = Field(default=None, ge=1)
    """Trials of each output dimension that are confirmed."""
    confirm_seeds: int | None = Field(default=None, ge=1)
    """Trainings of each."""
    objectives: tuple[str, ...] = (QUALITY,)
    enqueue: Path | None = None
    """A file of settings to try first."""
    warm_start: str | None = None
    """The folder, or the URI, of an earlier sweep."""
    lag: int | None = Field(default=None, ge=0)
    """How many trials may be under way when the next is suggested; None is 8, or twice as many as run at once."""
    study: str | None = None
    """A database's URL for the study; None is an SQLite file in the run's folder, or where the run's study is."""
    extend: bool = False
    """Whether a run is continued with another search space, data or metric."""
    mlflow: str | None = None
    """A tracking URI to log trials to."""
    wandb: str | None = None
    """A project to log trials to."""


class CompareSettings(RunSettings):
    """Everything that one `compare` command decides."""

    files: tuple[Path, ...]
    """Files of configurations."""
    rows: tuple[str, ...] = ()
    """Names of the configurations to train; () is all."""
    seeds: int = Field(default=3, ge=1)
    """Each configuration is trained with the seeds `seed`, `seed` + 1, ..."""
    steps: int | None = Field(default=None, ge=1)
    """Optimiser steps of one training at most; None is what the configuration says."""
