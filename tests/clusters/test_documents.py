"""What the pages in clusters/ say of files and options that are there."""

from __future__ import annotations

from pathlib import Path

from files import ROOT, UP


def test_every_file_is_in_the_readme() -> None:
    text = (ROOT / "clusters" / "README.md").read_text()
    for path in (ROOT / "clusters").iterdir():
        if path.is_file() and path.name != "README.md":
            assert f"]({path.name})" in text, path.name
    assert all(Path(name).name in text for name in UP)


def test_what_the_nodes_install_is_made_by_make() -> None:
    import subprocess

    said = subprocess.run(["make", "-n", "cluster-bundle"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "build/distilbench.bundle HEAD" in said
