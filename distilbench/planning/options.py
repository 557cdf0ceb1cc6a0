"""The options of `plan` alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from distilbench.commands.options import Shared
from distilbench.planning.machines import CPUS_PER_GPU

PLAN_OPTIONS: dict[str, Shared] = {
    "rates": (
        Annotated[
            list[Path] | None,
            typer.Option(
                help="Measured rates: a file by --measure, or runs/NAME of a finished sweep; repeatable, one a device."
            ),
        ],
        None,
    ),
    "measure": (
        Annotated[
            Path | None, typer.Option(help="Measure the rates on this machine, in about a minute, into this file.")
        ],
        None,
    ),
    "probe": (Annotated[bool, typer.Option("--probe", help="Measure them, and keep no file.")], False),
    "gpus": (
        Annotated[
            str | None,
            typer.Option(
                help="Clusters of so many one-GPU nodes: 1,8,64, or 1,8,64@2.50 with the price of a node's hour."
            ),
        ],
        None,
    ),
    "cpus_per_gpu": (Annotated[int, typer.Option(min=1, help="CPUs of such a node.")], CPUS_PER_GPU),
    "nodes": (
        Annotated[
            list[str] | None,
            typer.Option(
                help="A cluster, COUNTxCPUS[:GPUS][@DOLLARS_PER_HOUR], kinds with commas between, such as "
                "8x16:1@1.20,1x8@0.40; repeatable."
            ),
        ],
        None,
    ),
    "json_file": (Annotated[Path | None, typer.Option("--json", help="Write all of it to this file too.")], None),
}
