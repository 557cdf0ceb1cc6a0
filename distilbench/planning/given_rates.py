"""Rates as `--rates` gives them: a file, or the folder of a finished run."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from distilbench.errors import InputError
from distilbench.planning.from_run import run_rates
from distilbench.planning.rates import Rates


def read_rates(path: Path) -> Rates:
    """Rates from a file that `plan --measure` wrote, or from the folder of a finished run.

    Raises:
        InputError: there is no such file or folder, or it is something else.
    """
    if path.is_dir():
        return run_rates(path)
    try:
        return Rates.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"--rates {path}: cannot be read ({error.strerror}); expected a file that `plan --measure` wrote, or runs/NAME"
        ) from None
    except (ValidationError, UnicodeDecodeError) as error:
        where = ""
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            where = f" ({'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg'].lower()})"
        raise InputError(
            f"--rates {path}: not a file of rates{where}; expected one that `plan --measure` wrote, or runs/NAME"
        ) from None
