"""Whether the Hugging Face hub answers: asked once, within seconds, before its libraries ask again and again."""

from __future__ import annotations

import functools
import os
import threading

import rich

ANSWER_S = 8.0
"""The hub has so long to answer: its libraries would try for minutes, name servers alone for half of one."""
OFFLINE = "HF_HUB_OFFLINE"

_told = threading.Event()


@functools.cache
def hub_silence() -> str:
    """Why the hub cannot be reached; "" where it answers, or is not to be asked at all (`HF_HUB_OFFLINE`).

    Where it does not answer, this process and those that it starts go by the hub's cache from now on, at once.
    """
    from huggingface_hub import constants

    reason = "" if constants.is_offline_mode() else _ask(constants.ENDPOINT)
    if reason:
        constants.HF_HUB_OFFLINE, os.environ[OFFLINE] = True, "1"
    return reason


def tell_cached(name: str) -> None:
    """Say, once, that what is in the hub's cache is used since the hub does not answer."""
    if (reason := hub_silence()) and not _told.is_set():
        _told.set()
        rich.print(f"The hub cannot be reached ({reason}): {name} is the one in its cache")


def _ask(address: str) -> str:
    from huggingface_hub import get_session

    session, outcome = get_session(), [f"{address} does not answer within {ANSWER_S:g} s"]

    def head() -> None:
        try:
            session.head(address, timeout=ANSWER_S)
            outcome[0] = ""
        except Exception as error:  # of the network, in many classes
            outcome[0] = f"{address}: {' '.join(str(error).split()) or type(error).__name__:.200}"

    asking = threading.Thread(target=head, daemon=True)  # a name server has a timeout of its own
    asking.start()
    asking.join(ANSWER_S)
    return outcome[0]
