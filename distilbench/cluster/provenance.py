"""Where a number comes from: commit, versions, machine, time."""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib.metadata
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distilbench.encoders.encoder import default_device
from distilbench.records import Provenance

PACKAGES = (
    "distilbench",
    "torch",
    "transformers",
    "sentence-transformers",
    "ray",
    "optuna",
    "numpy",
    "faiss-cpu",
    "faiss-gpu",
)
INSTRUCTIONS = (
    "avx2",
    "avx512_f",
    "avx512_vnni",
    "avx_vnni",
    "avx512_bf16",
    "amx_int8",
    "amx_bf16",
    "dot",
    "i8mm",
    "sve",
)
"""What a CPU's speed depends on, as torch calls them: of x86 and of Arm."""


@functools.lru_cache(maxsize=1)
def commit() -> str:
    """The commit of the checkout that this package runs from, "+changes" when it is dirty; "" outside a checkout."""
    package = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(package), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        if not git("ls-files", "__init__.py"):
            return ""
        head = git("rev-parse", "HEAD")
        return f"{head}+changes" if git("status", "--porcelain", "--untracked-files=no") else head
    except OSError:
        return ""


@functools.cache
def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def machine() -> dict[str, Any]:
    """The device of this process (a CPU with the instructions that it has), and the CPUs that it may use, as a record has
    them."""
    import torch

    processor = torch.cpu.get_capabilities()
    device = f"CPU ({', '.join([sysconfig.get_platform(), *filter(processor.get, INSTRUCTIONS)])})"
    if default_device() == "cuda":
        device = str(torch.cuda.get_device_name())
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {"device": device, "cpus": cpus}


def provenance(of: Mapping[str, Any] | None = None) -> Provenance:
    """The provenance of a number that is made now, on this machine; or on another, where `of` is its `machine()`."""
    where = of or machine()
    return Provenance(
        created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        commit=commit(),
        versions=_versions(),
        **{key: where[key] for key in ("device", "cpus") if key in where},
    )
