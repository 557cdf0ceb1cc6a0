"""A table of texts, and one renderer each for Markdown, LaTeX and CSV. Every text is escaped here and nowhere before."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

MISSING = "-"
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")


class Head(NamedTuple):
    """A column: its title, and whether it is set to the right."""

    title: str
    number: bool = True


class Line(NamedTuple):
    """A row's texts, one for each column; "-" where there is no value."""

    cells: tuple[str, ...]


class Section(NamedTuple):
    """Lines under a title; "" is no title."""

    title: str
    lines: tuple[Line, ...]


class Grid(NamedTuple):
    """A table as it is read: notes stand below it, and `lead` above it where there are paragraphs."""

    title: str
    head: tuple[Head, ...]
    sections: tuple[Section, ...]
    notes: tuple[str, ...] = ()
    lead: tuple[str, ...] = ()


def to_markdown(grid: Grid) -> str:
    """A GitHub table; a section's title is a line."""
    lines = [f"## {markdown_text(grid.title)}", ""]
    lines += [text for paragraph in grid.lead for text in (markdown_text(paragraph), "")]
    lines.append(_piped(markdown_text(head.title) for head in grid.head))
    lines.append(_piped("---:" if head.number else "---" for head in grid.head))
    for section in grid.sections:
        if section.title:
            blank = [""] * (len(grid.head) - 1)
            lines.append(_piped([f"**{markdown_text(section.title)}**", *blank]))
        lines += [_piped(map(markdown_text, line.cells)) for line in section.lines]
    lines += [text for note in grid.notes for text in ("", markdown_text(note))]
    return "\n".join(lines) + "\n"


def to_latex(grid: Grid) -> str:
    """A `table` in the style of booktabs. Letters beyond ASCII that are not set here need XeLaTeX or LuaLaTeX."""
    columns = "".join("r" if head.number else "l" for head in grid.head)
    lines = [
        r"% Needs \usepackage{booktabs}.",
        *(f"% {latex_text(paragraph)}" for paragraph in grid.lead),
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex_text(grid.title)}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _row(latex_text(head.title) for head in grid.head),
    ]
    for section in grid.sections:
        lines.append(r"\midrule")
        if section.title:
            lines.append(rf"\multicolumn{{{len(grid.head)}}}{{c}}{{{latex_text(section.title)}}} \\")
        lines += [_row(map(latex_text, line.cells)) for line in section.lines]
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip\parbox{{\linewidth}}{{\footnotesize {latex_text(note)}}}" for note in grid.notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def csv_of(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV, CRLF-ended. A text that a spreadsheet would take for a formula is preceded by an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerows([_csv_cell(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return out.getvalue()


_CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029]")


def cell_text(text: str) -> str:
    """`text` without line breaks, control characters and runs of blanks."""
    return " ".join(_CONTROL.sub(" ", text).split())


_WWW = re.compile(r"(?i)\bwww\.")
_MARKDOWN = str.maketrans(
    {
        "&": "&amp;",
        "<": "&lt;",
        ">": "&gt;",
        "@": "&#64;",
        "#": "&#35;",
        **{character: "\\" + character for character in "\\`*_[]|~$"},
    }
)


def markdown_text(text: str) -> str:
    """`text` in a cell of a GitHub table: no markup, no HTML, no link, no mention of a user."""
    plain = cell_text(text).translate(_MARKDOWN)
    return _WWW.sub("www&#46;", plain.replace("://", "&#58;//"))


_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        # Behind the \\ of the line before, both would be its argument.
        "[": "{[}",
        "*": "{*}",
        "±": r"$\pm$",
        "×": r"$\times$",
        "²": r"\textsuperscript{2}",
        "α": r"$\alpha$",
        "ψ": r"$\psi$",
        **{character: "\\" + character for character in "%#&_$"},
    }
)


def latex_text(text: str) -> str:
    """`text` in a LaTeX table: printed as it is, with no command of its own."""
    return cell_text(text).translate(_LATEX)


def _csv_cell(text: str) -> str:
    return "'" + text if text.startswith(_FORMULA_STARTS) and not _NUMBER.fullmatch(text) else text


def _piped(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"
