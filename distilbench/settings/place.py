"""Settings of folders, storage and machines."""

from __future__ import annotations

import errno
import os
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator

from distilbench.errors import InputError
from distilbench.settings.option import Settings, option

if TYPE_CHECKING:
    from distilbench.cluster.nodes import Node
    from distilbench.storage.remote import Remote
    from distilbench.storage.store import ArtifactStore

PANEL = "Cluster and storage"
RESOURCES = "Resources"

NOT_OURS = (errno.EROFS, errno.EACCES, errno.EPERM)
"""The errors of a folder that is read-only, or another user's."""
GPU_SHARE = 0.25
"""The share of a GPU for each worker that prepares data: several of them tokenise and write while one computes."""


@dataclass(frozen=True)
class PoolSize:
    """The number of workers that prepare data at once; None: as fit."""

    workers: int | None = None
    grow_to: tuple[Node, ...] = ()
    """Nodes that an autoscaler may have: workers wait for these too."""


AS_FIT = PoolSize()


def _default_store() -> Path:
    from distilbench.storage.store import default_store

    return default_store()


def check_writable(name: str, folder: Path) -> None:
    """Refuse a folder, given as the option `name`, that cannot be made or written."""
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.exists(path))
    why = "" if place.is_dir() else "is no folder"
    try:
        if not why:  # permissions do not tell of all that a file system refuses
            tempfile.TemporaryFile(dir=place).close()
            return
    except OSError as error:
        why = "is read-only, or somebody else's" if error.errno in NOT_OURS else f"takes no file ({error.strerror})"
    raise InputError(f"{name} {folder}: cannot be written: {place} {why}; expected a folder that can")


def _checked_uri(value: str | None) -> str | None:
    from distilbench.storage.remote import check_uri

    return check_uri(value) if value else None


class ClusterSettings(Settings):
    """The machines, and the folder of artifacts."""

    store: Path = option(
        "Artifact store; default: the user's cache folder.", panel=PANEL, default_factory=_default_store
    )
    address: str | None = option(
        "A running Ray cluster; default: the one that runs here, or a new one.", None, panel=PANEL
    )
    dashboard: bool = option("Start Ray's dashboard, unless it is left out.", True, panel=PANEL)
    cpus: int | None = option(
        "CPUs of a new Ray on this machine, and threads of the command itself; default: all.",
        None,
        panel=RESOURCES,
        ge=1,
    )
    workers: int | None = option(
        "Processes at once at most: workers that prepare data, and trials; default: as fit.",
        None,
        panel=RESOURCES,
        ge=1,
    )

    def check_folders(self) -> None:
        """Refuse a folder that cannot be written, before anything is done for it."""
        check_writable("--store", self.store)
        if isinstance(self, RunPlaceSettings):
            check_writable("--runs", self.runs)
            check_writable("--runs", self.report_folder)

    @property
    def pool(self) -> PoolSize:
        """The workers that prepare data."""
        return PoolSize(self.workers)


class GrowingClusterSettings(ClusterSettings):
    """Machines that may come, and such without a shared disk."""

    storage: Annotated[str | None, AfterValidator(_checked_uri)] = option(
        "Object storage that machines without a shared disk work through, such as s3://bucket/project.",
        None,
        panel=PANEL,
        env="DISTILBENCH_STORAGE",
    )
    grow_to: str = option(
        "Nodes that an autoscaler may bring, as COUNTxCPUS:GPUS with commas between, such as 8x16:1,4x32.",
        "",
        panel=PANEL,
        env="DISTILBENCH_GROW_TO",
    )

    def model_post_init(self, context: Any, /) -> None:
        """Check how nodes are written, before anything runs."""
        _ = self.nodes_to_come

    @cached_property
    def nodes_to_come(self) -> tuple[Node, ...]:
        """The nodes that an autoscaler may bring."""
        from distilbench.cluster.nodes import parse_growth

        return parse_growth(self.grow_to)

    @property
    def remote(self) -> Remote | None:
        """The prefix in object storage through which machines without a shared disk work; None: the disk."""
        from distilbench.storage.remote import Remote

        return Remote(self.storage) if self.storage else None

    @property
    def artifacts(self) -> ArtifactStore:
        """The store of artifacts, here and in the object storage."""
        from distilbench.storage.store import ArtifactStore

        return ArtifactStore(self.store, self.remote / "store" if self.remote else None)

    @property
    def pool(self) -> PoolSize:
        """The workers that prepare data."""
        return PoolSize(self.workers, grow_to=self.nodes_to_come)


class RunPlaceSettings(Settings):
    """The folders of a run and its leaderboard."""

    name: str | None = option("The run's name; the same name continues a run.", None)
    runs: Path = option(
        "Where runs are kept; leaderboards are written to `reports` beside it.", Path("runs"), panel=PANEL
    )

    @property
    def report_folder(self) -> Path:
        """The folder of leaderboards, beside that of the runs."""
        return self.runs.parent / "reports"
