"""The paths that `prepared.json` names: artifacts of the store, and the encoders' folders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distilbench.encoders.student import with_encoder

ARTIFACTS = ("pca", "tokens", "logits", "negatives", "nearest", "static")
"""Beside the embeddings; None, or not named at all, where the methods do not need one."""


def artifacts_of(described: dict[str, Any]) -> list[str | None]:
    """The folders of the embeddings and the other artifacts."""
    parts = [described, *described.get("students", {}).values()]
    return [described["vectors"]["folder"], *(part[name] for part in parts for name in ARTIFACTS if name in part)]


def with_paths(
    described: dict[str, Any], artifact: Callable[[str], str], encoder: Callable[[str], str]
) -> dict[str, Any]:
    """`prepared.json` with every artifact's path, and every encoder's name or path, replaced."""
    students = described.get("students", {})

    def student(own: dict[str, Any]) -> dict[str, Any]:
        return {**own, "student": with_encoder(own["student"], encoder), **_artifacts(own, artifact)}

    return {
        **described,
        "teacher": {**described["teacher"], "name": encoder(described["teacher"]["name"])},
        "student": with_encoder(described["student"], encoder),
        "vectors": {**described["vectors"], "folder": artifact(described["vectors"]["folder"])},
        **_artifacts(described, artifact),
        **({"students": {name: student(own) for name, own in students.items()}} if students else {}),
    }


def _artifacts(described: dict[str, Any], artifact: Callable[[str], str]) -> dict[str, Any]:
    return {name: described[name] and artifact(described[name]) for name in ARTIFACTS if name in described}
