"""The cluster files as Ray reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
UP = ("cluster.yaml", "clusters/gcp.yaml", "clusters/azure.yaml", "clusters/local.yaml")
"""The files of `ray up`."""
CLOUDS = UP[:3]
KUBERAY = ("clusters/kuberay-raycluster.yaml", "clusters/kuberay-rayjob.yaml")
HOOK = "distilbench.cluster.start_hook.no_client_server"


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / name).read_text())


def documents(name: str) -> dict[str, dict[str, Any]]:
    """Those of a manifest, by kind."""
    found = list(yaml.safe_load_all((ROOT / name).read_text()))
    assert len({d["kind"] for d in found}) == len(found)
    return {d["kind"]: d for d in found}


def environment(config: dict[str, Any]) -> dict[str, str]:
    """What the set-up of a file of `ray up` writes to ~/distilbench.env."""
    (command,) = (c for c in config["setup_commands"] if c.endswith("> ~/distilbench.env"))
    words = command.split()
    assert words[:3] == ["printf", "'export", "%s\\n'"] and words[-2:] == [">", "~/distilbench.env"]
    return dict(word.split("=", 1) for word in words[3:-2])
