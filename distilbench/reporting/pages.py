"""The frame of every page: its templates, its style and script, and the policy that keeps all else out."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from distilbench.reporting.colours import DARK_OF
from distilbench.reporting.formats import FILTERS
from distilbench.reporting.study_file import RECORDS
from distilbench.storage.files import atomic_path

PLOTLY_FILE, STYLE_FILE, SCRIPT_FILE = "plotly.min.js", "report.css", "report.js"
POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file: 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""Scripts and styles come from files of the report alone. Plotly styles what it draws inline; `file:` since a page opened
from disk is of no origin, and so never its own 'self'."""

_TEMPLATES = Path(__file__).parent / "templates"
BUNDLE = _TEMPLATES / "plotly-cartesian.min.js.gz"
"""A third of the whole Plotly: the charts that the figures use (PLOTLY.md beside it says where it comes from)."""


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    environment.globals.update(
        policy=Markup(POLICY.replace("'", "&#39;")), plotly_file=PLOTLY_FILE, dark_of=json.dumps(DARK_OF)
    )
    environment.globals.update(style_file=STYLE_FILE, script_file=SCRIPT_FILE, records_file=RECORDS)
    return environment


def render_html(template: str, root: str, **values: Any) -> str:
    """The HTML of a page; `root` is the way to the report's folder, "" or "../"."""
    return _environment().get_template(template).render(root=root, **values)


def write_assets(folder: Path) -> None:
    """The style, the script and Plotly, once for all pages of a report."""
    for name in (STYLE_FILE, SCRIPT_FILE):
        write_page(folder / name, (_TEMPLATES / name).read_text("utf-8"))
    write_page(folder / PLOTLY_FILE, plotly_script())


def plotly_script() -> str:
    """The JavaScript of Plotly."""
    return gzip.decompress(BUNDLE.read_bytes()).decode()


def write_page(path: Path, text: str) -> None:
    """Write `text`, whole or not at all; nothing where it is there already."""
    payload = text.encode()
    if path.is_file() and path.stat().st_size == len(payload) and path.read_bytes() == payload:
        return
    with atomic_path(path) as temporary:
        temporary.write_bytes(payload)
