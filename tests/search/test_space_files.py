"""Which search space a sweep takes: the user's own, or one that comes along."""

from __future__ import annotations

from pathlib import Path

import pytest

from distilbench.errors import InputError
from distilbench.search.space_files import shipped_folder, space_file


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("method", "named", "given", "folder"),
    [
        ("hpd", None, {"data": False}, "small"),
        ("hpd", None, {"data": True}, "real"),
        ("hpd", "cluster", {"data": False}, "cluster"),
        ("hpd", "front", {"data": True, "static": True}, "front"),
        ("hpd", None, {"data": True, "static": True}, "static"),
        ("hpd", "small", {"data": True, "static": True}, "static"),
        ("mcr2", "small", {"data": True, "static": True}, "small"),  # which has none for static students
    ],
)
def test_a_folder_that_comes_along(method: str, named: str | None, given: dict[str, bool], folder: str) -> None:
    assert space_file(method, named, **given) == (shipped_folder() / folder / f"{method}.yaml", True)  # type: ignore[arg-type]


def test_the_users_own_is_the_one_named_or_that_of_the_working_folder(working_folder: Path) -> None:
    own = working_folder / "search_spaces"
    own.mkdir()
    (own / "hpd.yaml").write_text("method: hpd\n")
    assert space_file("hpd", None, data=True) == (Path("search_spaces/hpd.yaml"), False)
    assert space_file("hpd", str(own), data=True) == (own / "hpd.yaml", False)
    assert space_file("mse", str(own / "hpd.yaml"), data=True) == (own / "hpd.yaml", False)
    assert space_file("hpd", str(shipped_folder() / "front"), data=True).shipped
    with pytest.raises(InputError, match=r"^--space nosuch: .*cluster, front, .*real.*small"):
        space_file("mse", "nosuch", data=True)
    with pytest.raises(InputError, match=f"^--space {own}: expected mse.yaml in this folder"):
        space_file("mse", str(own), data=True)
    with pytest.raises(
        InputError, match=r"^no search space: looked for search_spaces/new.yaml and .*/small/new.yaml; "
    ):
        space_file("new", None, data=False)
