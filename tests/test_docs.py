"""README, docs/ and results/: links lead somewhere, and every command in them is one that the command line accepts."""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import inspect
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from distilbench import cli
from distilbench.cli import app
from distilbench.errors import InputError
from distilbench.methods import get_method

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [ROOT / "README.md", *(f for d in ("docs", "results", "clusters") for f in (ROOT / d).glob("*.md"))]
)
REFERENCE = [name for name in PAGES if name.startswith(("README", "docs/"))]
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
USAGE_ERROR: Any = typer.BadParameter.__mro__[1]  # of the click that Typer uses, which may be its own copy
FENCE = re.compile(r"^```[^\n]*\n.*?^```$|(?:^ {4,}\S[^\n]*\n?)+", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")


class Command(NamedTuple):
    """A command line in a page."""

    words: tuple[str, ...]
    whole: bool
    """Whether it stands in a code block, so that a reader may copy it; inline code may leave out what a command needs."""


# --- What is in a page


@cache
def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text: str) -> list[str]:
    """The code blocks of a page: fenced ones, and those indented by four spaces that are not part of a list."""
    return [re.sub(r"^```.*$", "", block.group(), flags=re.MULTILINE) for block in FENCE.finditer(text)]


def prose(text: str) -> str:
    """A page without its code blocks."""
    return FENCE.sub("", text)


def shell_commands(code: str, whole: bool) -> Iterator[Command]:
    """The commands of ours in shell code, with the variables that it sets put in, also those given to another command."""
    known: dict[str, str] = {}
    for line in code.replace("\\\n", " ").splitlines():
        line = re.sub(r"\$\{?(\w+)\}?", lambda m: known.get(m.group(1), m.group()), line)
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # an apostrophe: no shell
            continue
        for word in words:
            if assigned := re.fullmatch(r"([A-Z_]+)=(.*)", word):
                known[assigned.group(1)] = assigned.group(2)
            elif " " in word:
                yield from shell_commands(word, whole)
        starts = [i for i, word in enumerate(words) if _is_ours(words, i)]
        for start in starts:
            end = next(
                (i for i in range(start, len(words)) if words[i] in ("|", "||", "&&", "&", ";", ">")), len(words)
            )
            ours = [word.rstrip(";") for word in words[start:end] if word not in ("...", "\\")]
            yield Command(tuple(ours), whole)


def _is_ours(words: list[str], i: int) -> bool:
    if Path(words[i]).name == "distilbench":
        return i + 1 < len(words) and (not words[i + 1].startswith("-") or words[i + 1] in ("--help", "--version"))
    if not re.fullmatch(r"python3?", Path(words[i]).name):
        return False
    rest = words[i + 1 :]
    return (rest[:1] == ["-m"] and rest[1].startswith("platform.")) or (bool(rest) and rest[0].endswith(".py"))


def commands(name: str) -> list[Command]:
    text = text_of(name)
    found = [command for block in blocks(text) for command in shell_commands(block, whole=True)]
    for code in INLINE.findall(prose(text)):
        found.extend(shell_commands(" ".join(code.split()), whole=False))
    return found


# --- What the command line says of a command


def refusal(command: Command) -> str | None:
    """Why a command would not be accepted; None if it would."""
    first, *rest = command.words
    if Path(first).name.startswith("python"):
        if rest[0] != "-m":
            return _script_refusal(rest[0], rest[1:], command.whole)
        name, arguments = rest[1].removeprefix("platform."), rest[2:]
        if name.islower() and not (ROOT / "platform" / f"{name}.py").is_file():
            return f"there is no platform/{name}.py"
    else:
        name, arguments = rest[0], rest[1:]
    if name in ("COMMAND", "--help", "--version"):
        return None
    if name not in COMMANDS:
        return f"there is no command {name}"
    if not arguments and not command.whole:
        return None
    try:
        given = COMMANDS[name].make_context(name, arguments).params
    except typer.Exit:  # --help, --version
        return None
    except USAGE_ERROR as error:
        left_out = type(error).__name__ == "MissingParameter" and not command.whole
        absent = "does not exist" in error.message  # a placeholder: DIR, FILE
        return None if left_out or absent else str(error.format_message())
    try:
        _check_values(name, given, command.whole)
    except InputError as error:
        return str(error)
    return None


def _check_values(name: str, given: dict[str, Any], whole: bool) -> None:
    """Raise InputError for an option whose value is none of those that it can have. Nothing is read or fetched for it."""
    remote = ("storage", "warm_start")  # whether a URI can be used is asked of its service
    values = {key: value for key, value in given.items() if value not in (None, [], ()) and key not in remote}
    kind = getattr(cli, f"{name.capitalize()}Settings")
    if not whole:  # a part of a command, in a sentence, may leave out what is needed
        missing = {key for key, field in kind.model_fields.items() if field.is_required()} - set(values)
        values |= dict.fromkeys(missing, "hpd")
    settings = kind(**values)
    for method in getattr(settings, "methods", ()):
        if method != "relational":  # the example of a method in docs/methods.md
            get_method(method)


def _script_refusal(path: str, arguments: list[str], whole: bool) -> str | None:
    if not (ROOT / path).is_file():
        return f"there is no {path}"
    parser = script_parser(path)
    if not arguments and not whole:
        return None
    try:
        parser.parse_args(arguments)
    except _Refused as error:
        return str(error)
    return None


class _Refused(Exception):
    pass


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise _Refused(message)


@cache
def script_parser(path: str) -> argparse.ArgumentParser:
    """The parser of a script, from its `add_argument` calls: the script itself, and what it imports, do not run."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    parser = _Parser(prog=path)
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument"):
            continue
        names = [ast.literal_eval(arg) for arg in node.args if isinstance(arg, ast.Constant)]
        if not names:  # of another kind of object: a browser's options
            continue
        settings = {
            key.arg: _literal(key.value, constants) for key in node.keywords if key.arg not in ("help", "default")
        }
        parser.add_argument(*names, **{str(key): value for key, value in settings.items() if value is not None})
    return parser


def _literal(node: ast.expr, constants: dict[str, ast.expr]) -> Any:
    """The value of an argument: a type, a constant of the module, or the keys of a dictionary there; else None."""
    if isinstance(node, ast.Name):
        types = {"int": int, "float": float, "Path": Path}
        return types.get(node.id) or (_literal(constants[node.id], {}) if node.id in constants else None)
    if isinstance(node, ast.Dict):
        return [ast.literal_eval(key) for key in node.keys if key is not None]
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


@pytest.mark.parametrize("name", PAGES)
def test_every_command_is_accepted(name: str) -> None:
    refused = {" ".join(c.words): why for c in commands(name) if (why := refusal(c)) is not None}
    assert refused == {}


def test_pages_have_the_commands_that_a_reader_starts_with() -> None:
    found = {c.words for c in commands("README.md")}
    assert ("python", "-m", "platform.sweep", "--method", "mcr2") in found
    named = {c.words[1] for name in REFERENCE for c in commands(name) if Path(c.words[0]).name == "distilbench"}
    assert set(COMMANDS) <= named


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("distilbench swep --method mcr2", "no command swep"),
        ("distilbench sweep --method mcr2 --tirals 3", "--tirals"),
        ("distilbench sweep --method mcr2 --trials 0", "--trials"),
        ("distilbench sweep --method mcr3", "mcr3"),
        ("distilbench sweep", "--method"),
        ("distilbench evaluate NAME --tasks sts,speech", "speech"),
        ("ray exec cluster.yaml 'distilbench sweep --method mcr2 --confirm-top none'", "--confirm-top"),
        ("OPTIONS='--max-pending x'\ndistilbench sweep --method mcr2 $OPTIONS", "--max-pending"),
        (".venv/bin/python -m platform.swep --method mcr2", "platform/swep.py"),
        ("python -m platform.report runs/A", "--out"),
        ("python benchmarks/sweeep.py overhead", "benchmarks/sweeep.py"),
        ("python benchmarks/sweep.py overheads", "overheads"),
    ],
)
def test_a_command_that_is_not_accepted_is_found(code: str, said: str) -> None:
    found = list(shell_commands(code, whole=True))
    assert len(found) == 1
    assert said in (refusal(found[0]) or "")


# --- Every option is explained


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_option_is_named(command: str) -> None:
    text = "\n".join(text_of(name) for name in REFERENCE)
    options = {
        option
        for parameter in COMMANDS[command].params
        if parameter.param_type_name == "option" and not parameter.hidden
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    missing = {option for option in options if not re.search(re.escape(option) + r"(?![\w-])", text)}
    assert missing == set()


def test_every_method_and_parameter_is_named() -> None:
    from distilbench.methods import get_method, method_names

    named = set(re.findall(r"`([a-z0-9_]+)`", text_of("docs/methods.md")))
    parameters = {
        field.alias or name for m in method_names() for name, field in get_method(m).params_type.model_fields.items()
    }
    assert {*method_names(), *parameters} - named == set()


# --- Links


def slug(heading: str) -> str:
    """GitHub's anchor of a heading: its text in lower case, without punctuation, spaces as hyphens."""
    shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Every anchor of a page; a heading that is there again has -1, -2, ... behind it."""
    found: dict[str, int] = {}
    result = set()
    for heading in re.findall(r"^#{1,6} (.*?)#*$", FENCE.sub("", text), re.MULTILINE):
        name = slug(heading)
        count = found.get(name, 0)
        found[name] = count + 1
        result.add(f"{name}-{count}" if count else name)
    return result


def links(text: str) -> list[str]:
    """The targets of a page's links and pictures, code left out."""
    shown = INLINE.sub("code", FENCE.sub("", text))
    return re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", shown)


@cache
def known_files() -> frozenset[str]:
    """Files that are tracked, or could be: those that git ignores are on no other machine."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode:  # no clone: an unpacked archive
        return frozenset(str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file())
    return frozenset(name for name in listed.stdout.split("\0") if (ROOT / name).is_file())


def is_known(path: Path) -> bool:
    """Whether a path is a file of the repository, or a folder of it."""
    name = str(path.relative_to(ROOT))
    return name in known_files() or any(other.startswith(f"{name}/") for other in known_files())


def broken(page: Path, text: str) -> list[str]:
    """The relative links of a page's text that lead nowhere."""
    wrong = []
    for link in links(text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.is_relative_to(ROOT) or not is_known(target):
            wrong.append(link)
        elif anchor and (target.suffix != ".md" or anchor not in anchors(target.read_text(encoding="utf-8"))):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    assert broken(ROOT / name, text_of(name)) == []


def test_a_broken_link_is_found() -> None:
    page = ROOT / "docs" / "start.md"
    right = (
        "[a](data.md) [b](../results/README.md#studies) [c](#install) [d](https://ray.io) `[e](no.md)` [f](../docs/)"
    )
    wrong = ["no.md", "data.md#no-such-heading", "#nothing", "../../elsewhere.md", "../.venv/bin/python"]
    assert broken(page, right) == []
    assert broken(page, " ".join(f"[x\ny]({link})" for link in wrong)) == wrong


@pytest.mark.parametrize("name", REFERENCE)
def test_every_page_is_linked_from_the_readme(name: str) -> None:
    assert name == "README.md" or f"({name})" in text_of("README.md")


def test_every_page_of_results_is_in_their_list() -> None:
    listed = set(links(text_of("results/README.md")))
    assert {Path(name).name for name in PAGES if name.startswith("results/")} - {"README.md"} <= listed


FOLDERS = ("distilbench", "platform", "search_spaces", "benchmarks", "tools", "clusters", "tests", "results", "docs")


@pytest.mark.parametrize("name", PAGES)
def test_files_that_a_page_names_are_there(name: str) -> None:
    text = text_of(name)
    code = [*INLINE.findall(prose(text)), *blocks(text)]
    named = {
        path.rstrip("/.,:")
        for piece in code
        for path in re.findall(rf"(?<![\w/.~-])(?:{'|'.join(FOLDERS)})/[\w./-]+", piece)
    }
    made = {
        *("distilbench/methods/relational.py", "search_spaces/relational.yaml"),  # the example of a method
        *("search_spaces/METHOD.yaml", "results/starts", "distilbench/.venv/bin/ray"),  # a user's, a script's, a node's
    }
    assert {path for path in named - made if not (ROOT / path).exists()} == set()


# --- Form


def test_the_readme_is_short() -> None:
    assert len(text_of("README.md").splitlines()) < 200


@pytest.mark.parametrize("name", REFERENCE)
def test_lines_are_short(name: str) -> None:
    long = [line for line in text_of(name).splitlines() if len(line) > 120 and not line.startswith("|")]
    assert long == []


# --- The architecture page


def test_the_walk_names_functions_that_there_are_each_once() -> None:
    walk = text_of("docs/architecture.md").split("## The walk of one sentence")[1].split("## The folders")[0]
    named = [n for n in re.findall(r"`((?:\w+\.)+\w+)`", walk) if not n.endswith((".html", ".toml"))]
    assert len(named) > 20 and len(set(named)) == len(named)
    files: set[str] = set()
    for name in named:
        module, *rest = name.split(".")
        found: Any = importlib.import_module(f"distilbench.{module}")
        for part in rest:
            try:
                found = getattr(found, part)
            except AttributeError:
                found = importlib.import_module(f"{found.__name__}.{part}")
        assert callable(found), name
        files.add(inspect.getfile(found))
    assert f"{len(named)} functions in\n{len(files)} files, each function once" in walk


# --- Scripts


SCRIPTS = [path for folder in ("tools", "benchmarks") for path in sorted((ROOT / folder).glob("*.py"))]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_what_a_script_takes_from_the_package_is_there(script: Path) -> None:
    """Without running it: some take minutes, or a peer that is not installed."""
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("distilbench"):
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                assert hasattr(module, alias.name) or importlib.util.find_spec(f"{node.module}.{alias.name}"), (
                    alias.name
                )
