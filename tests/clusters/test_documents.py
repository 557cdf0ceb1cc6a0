"""What the pages in clusters/ say of files and options that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from files import ROOT, UP

from distilbench.cli import app

PAGES = ("clusters/README.md", "clusters/dashboard.md")


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    linked = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert linked
    missing = [link for link in linked if not (page.parent / link).exists()]
    assert missing == []


def test_every_file_is_in_the_readme() -> None:
    text = (ROOT / "clusters" / "README.md").read_text()
    for path in (ROOT / "clusters").iterdir():
        if path.is_file() and path.name != "README.md":
            assert f"]({path.name})" in text, path.name
    assert all(Path(name).name in text for name in UP)


def test_the_options_of_its_commands_are_there() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    text = (ROOT / "clusters" / "README.md").read_text()
    found = re.findall(r"distilbench (sweep|status) ([^\n'`|]*)", text)
    assert found
    for command, rest in found:
        options = {o for p in commands[command].params for o in p.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= options, rest


def test_what_the_nodes_install_is_made_by_make() -> None:
    import subprocess

    said = subprocess.run(["make", "-n", "cluster-bundle"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "build/distilbench.bundle HEAD" in said
