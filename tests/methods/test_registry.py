"""Methods are found by their module's name."""

import pytest

from distilbench.errors import InputError
from distilbench.methods import get_method, method_names


def test_every_method_is_whole() -> None:
    for name in method_names():
        method = get_method(name)
        assert not method.__abstractmethods__
        assert {"output_dim", "lr", "batch_size"} <= set(method.params_type.model_fields)


def test_an_unknown_method_names_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"--method mcr3: unknown method; expected one of hpd, mcr2"):
        get_method("mcr3")


@pytest.mark.parametrize("name", ["method", "heads", "../mcr2", ""])
def test_other_modules_are_no_methods(name: str) -> None:
    with pytest.raises(InputError):
        get_method(name)
