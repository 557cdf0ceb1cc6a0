"""Settings of `sweep`."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BeforeValidator

from distilbench.choices import QUALITY, ObjectiveName, Searcher, Stopping
from distilbench.errors import InputError
from distilbench.settings.option import COMMAS, option, split_at_commas
from distilbench.settings.run import SEARCH, RunSettings, SpaceSettings

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_PART = r"(\d+(?:\.\d+)?)([hms])"


def seconds(duration: Any) -> Any:
    """Seconds of a duration such as "90s", "30m", "2h" or "1h30m"; a number is left as it is."""
    if not isinstance(duration, str):
        return duration
    text = duration.strip().lower()
    parts = re.findall(_PART, text) if re.fullmatch(f"({_PART})+", text) else []
    total = math.fsum(float(number) * _UNITS[unit] for number, unit in parts)
    if not total:
        raise ValueError(duration)
    return total


def _methods(value: Any) -> tuple[str, ...]:
    names = split_at_commas(value)
    if not names:
        raise InputError(f"--method {value!r}: expected a method's name, several with commas between, or all")
    return tuple(names)


def _objectives(names: tuple[ObjectiveName, ...]) -> tuple[ObjectiveName, ...]:
    if QUALITY not in names:
        raise ValueError(f"{QUALITY} is missing")
    return tuple(name for name in get_args(ObjectiveName) if name in names)


def _source(value: str | None) -> str | None:
    from distilbench.storage.remote import check_uri, is_uri

    if value is None:
        return None
    return check_uri(value, "--warm-start") if is_uri(value) else str(Path(value))


class SweepSettings(SpaceSettings, RunSettings):
    """Settings of `sweep`."""

    method: Annotated[tuple[str, ...], BeforeValidator(_methods)] = option(
        "The method, such as hpd, mcr2, ibkd or dse (`distilbench methods` has them all); several with commas; or all."
    )
    trials: int | None = option("Trials in all; default: the search space's.", None, ge=1)
    time_budget: Annotated[float | None, BeforeValidator(seconds)] = option(
        "From start to leaderboard, such as 90s, 30m or 2h: it ends with what it has.",
        None,
        gt=0,
        expected="a time such as 90s, 30m, 2h or 1h30m",
    )
    searcher: Searcher | None = option("What suggests settings; default: the search space's.", None, panel=SEARCH)
    stopping: Stopping | None = option(
        "Which trials stop at a rung: all but the best, judged in cohorts (halving) or at once (asha), those below the "
        "median, none; default: the space's.",
        None,
        panel=SEARCH,
    )
    objectives: Annotated[tuple[ObjectiveName, ...], AfterValidator(_objectives), COMMAS] = option(
        "quality alone, or with some of bytes (of a vector), latency and model_bytes (on disk), with commas between.",
        (QUALITY,),
        panel=SEARCH,
        expected=f"{QUALITY} alone, or with some of bytes, latency and model_bytes, with commas between",
    )
    warm_start: Annotated[str | None, AfterValidator(_source)] = option(
        "What to begin from: a YAML list of settings to try first, or an earlier sweep's folder or URI, of which the best "
        "settings are tried first.",
        None,
        panel=SEARCH,
    )

    @property
    def warm_start_file(self) -> Path | None:
        """The file of settings to try first; None where there is none, or an earlier sweep instead."""
        return Path(self.warm_start) if self.warm_start and self.warm_start.endswith((".yaml", ".yml")) else None

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods, one after the other, each in a study of its own; () is all that the data allow."""
        return () if self.method == ("all",) else self.method
