"""Which search space a sweep takes: the user's own, or the one of a budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from distilbench.choices import BUDGETS, SpaceBudget
from distilbench.errors import InputError
from distilbench.search.space_files import shipped_folder, space_file


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("budget", "data", "folder"),
    [
        (None, False, "small"),
        (None, True, "real"),
        *((budget, data, budget) for budget in BUDGETS for data in (True, False)),
    ],
)
def test_the_budget_chooses_and_the_data_where_it_is_not_given(
    working_folder: Path, budget: SpaceBudget | None, data: bool, folder: str
) -> None:
    path, shipped = space_file("hpd", None, budget, data=data)
    assert path == shipped_folder() / folder / "hpd.yaml" and path.exists() and shipped


@pytest.mark.parametrize("budget", [None, "small"])
def test_a_static_student_has_its_own_spaces(working_folder: Path, budget: SpaceBudget | None) -> None:
    static = {"data": True, "static": True}
    assert space_file("hpd", None, budget, **static) == (shipped_folder() / "static" / "hpd.yaml", True)
    assert space_file("mcr2", None, "small", **static) == (shipped_folder() / "small" / "mcr2.yaml", True)


def test_ones_own_file_in_the_working_folder_is_found(working_folder: Path) -> None:
    (working_folder / "search_spaces").mkdir()
    for method in ("hpd", "relational"):
        (working_folder / "search_spaces" / f"{method}.yaml").write_text("method: hpd\n")
    for data in (True, False):
        assert space_file("hpd", None, None, data=data) == (Path("search_spaces/hpd.yaml"), False)
    # A budget that is asked for is one of the package's, as far as it has the method.
    assert space_file("hpd", None, "cluster", data=True).path == shipped_folder() / "cluster" / "hpd.yaml"
    assert space_file("relational", None, "cluster", data=True) == (Path("search_spaces/relational.yaml"), False)


def test_what_is_given_wins(working_folder: Path) -> None:
    own = working_folder / "own"
    own.mkdir()
    (own / "hpd.yaml").write_text("method: hpd\n")
    assert space_file("hpd", own, "cluster", data=True) == (own / "hpd.yaml", False)
    assert space_file("mse", own / "hpd.yaml", "cluster", data=True) == (own / "hpd.yaml", False)
    with pytest.raises(InputError, match=f"^--space {own}: expected mse.yaml in this folder"):
        space_file("mse", own, "cluster", data=True)


def test_a_folder_that_comes_along_may_be_given(working_folder: Path) -> None:
    assert space_file("hpd", shipped_folder() / "front", None, data=True) == (
        shipped_folder() / "front" / "hpd.yaml",
        True,
    )


def test_a_method_without_a_space_is_told_where_one_is_looked_for(working_folder: Path) -> None:
    with pytest.raises(
        InputError, match=r"^no search space: looked for search_spaces/new.yaml and .*/small/new.yaml; "
    ):
        space_file("new", None, None, data=False)
