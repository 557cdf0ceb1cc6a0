"""Print every file of the library with its first sentence, from the top layer to the bottom: python tools/module_map.py"""

from __future__ import annotations

import ast
import textwrap
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def said(file: Path) -> str:
    """The first sentence of a module's docstring."""
    text = " ".join((ast.get_docstring(ast.parse(file.read_text())) or "").split("\n\n")[0].split())
    return text.removesuffix(".")


def module_map(package: Path) -> str:
    """A heading for each folder, from the top layer to the bottom, and a line for each file."""
    folders = [package, *(package / name for name in layers() if (package / name).is_dir())]
    lines = []
    for folder in folders:
        own = folder.relative_to(package.parent).as_posix()
        lines += [f"### {own}/", ""]
        if (told := said(folder / "__init__.py")) and folder != package:
            lines += [f"{told}.", ""]
        files = sorted(folder.rglob("*.py") if folder != package else folder.glob("*.py"))
        for file in files:
            if file.name != "__init__.py" or (file.parent != folder and said(file)):
                name = file.relative_to(folder).as_posix()
                lines += textwrap.wrap(f"* `{name}`: {said(file)}", 118, subsequent_indent="  ")
        lines.append("")
    return "\n".join(lines)


def layers() -> list[str]:
    """The folders in the order of the contract in pyproject.toml."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return [name.strip() for layer in contracts[0]["layers"] for name in layer.split("|")]


if __name__ == "__main__":
    print(module_map(ROOT / "distilbench"))
