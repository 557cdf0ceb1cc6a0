"""Methods are found by their module's name, and one more file is one more method."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import distilbench.methods
from distilbench.commands.methods import description
from distilbench.errors import InputError
from distilbench.methods import get_method, method_names
from distilbench.methods.method import Method
from distilbench.prepare.prepared import Prepared
from distilbench.search.space_files import load_space
from distilbench.training.loop import Trainer
from distilbench.training.params import Params
from distilbench.trials.rung_training import build_method

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"<!-- method example -->\n(.*?)<!-- /method example -->", re.DOTALL)


def test_a_method_is_a_module_with_a_class_of_its_own() -> None:
    names = method_names()
    assert {"hpd", "ibkd", "mcr2", "mcr2_distil", "dse", "pca"} <= set(names)
    assert all(get_method(name).__module__ == f"distilbench.methods.{name}" for name in names)
    assert len({get_method(name).__name__ for name in names}) == len(names)


@pytest.mark.parametrize("name", method_names())
def test_every_method_is_whole(name: str) -> None:
    method = get_method(name)
    assert issubclass(method, Method) and not method.__abstractmethods__
    assert issubclass(method.params_type, Params)
    fields = method.params_type.model_fields
    # What a head needs that is not trained, and what the training loop asks of the others.
    assert "output_dim" in fields and ("lr" in fields) == ("batch_size" in fields)
    assert isinstance(method.trains_encoder, bool)
    assert re.fullmatch(r"(?s)Trains .*\.\s+Reads .*\.\s+Source: .*\.", description(method))


def test_titles_tell_methods_apart() -> None:
    titles = [get_method(name).title for name in method_names()]
    assert len(set(titles)) == len(titles)


def test_an_unknown_method_names_the_known_ones() -> None:
    known = ", ".join(method_names())
    with pytest.raises(InputError, match=f"--method mcr3: unknown method; expected one of {known}"):
        get_method("mcr3")


@pytest.mark.parametrize("name", ["method", "parts", "heads", "parts.heads", "losses", "../mcr2", ""])
def test_other_modules_are_no_methods(name: str) -> None:
    with pytest.raises(InputError):
        get_method(name)


def example_blocks() -> dict[str, str]:
    """The example of a method in docs/methods.md: its code blocks by language, between two comments."""
    found = EXAMPLE.findall((ROOT / "docs" / "methods.md").read_text(encoding="utf-8"))
    assert len(found) == 1, "docs/methods.md: expected one <!-- method example --> ... <!-- /method example -->"
    blocks = dict(re.findall(r"^```(\w+)\n(.*?)^```$", found[0], flags=re.MULTILINE | re.DOTALL))
    assert set(blocks) == {"python", "yaml"}, (
        "docs/methods.md: expected the method and its search space, fenced as such"
    )
    return blocks


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The search space of docs/methods.md, and its method where the package looks for methods."""
    blocks = example_blocks()
    space = tmp_path / "relational.yaml"
    space.write_text(blocks["yaml"])
    folder = tmp_path / "methods"
    folder.mkdir()
    (folder / "relational.py").write_text(blocks["python"])
    monkeypatch.setattr(distilbench.methods, "__path__", [*distilbench.methods.__path__, str(folder)])
    importlib.invalidate_caches()
    yield space
    sys.modules.pop("distilbench.methods.relational", None)
    if hasattr(distilbench.methods, "relational"):
        del distilbench.methods.relational


def test_the_example_is_short() -> None:
    blocks = example_blocks()
    assert len(blocks["python"].splitlines()) <= 31 and len(blocks["yaml"].splitlines()) <= 8


def test_a_method_is_added_by_one_file_and_one_search_space(
    example: Path, prepared: Prepared, sentences: list[str], tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    assert "relational" in method_names()
    method = get_method("relational")
    space = load_space(example, "relational", method.params_type, native=32)
    params = {**space.fixed, **{name: space.possible(name)[0] for name in space.parameters}}
    params |= {"output_dim": 8, "batch_size": 16, "lr": 0.003}  # of the small encoder here
    trainee = build_method("relational", params, prepared, 0, "cpu")
    trainer = Trainer(trainee, 0, min(space.budget.steps, 20))
    first = trainer.train_until(5)
    trainer.train_until(trainer.total_steps - 5)
    assert trainer.train_until(trainer.total_steps) < 0.8 * first
    rows = prepared.train[:10]
    trainee.export(tmp_path / "student")
    student = SentenceTransformer(str(tmp_path / "student"), device="cpu")
    assert student.encode([sentences[r] for r in rows]) == pytest.approx(trainee.embed(rows), abs=1e-5)
    assert trainee.embed(rows).shape == (10, 8)
