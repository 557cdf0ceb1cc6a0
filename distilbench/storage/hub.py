"""Whether the Hugging Face hub answers: asked once, within seconds, before its libraries ask again and again."""

from __future__ import annotations

import os
import threading
import time

import rich

ANSWER_S = 8.0
"""The hub has so long to answer: its libraries would try for minutes, name servers alone for half of one."""
AGAIN_S = 60.0
"""A hub that did not answer is asked again after this, in a process that goes on: a notebook."""
OFFLINE = "HF_HUB_OFFLINE"


class _State:
    """The answer of the hub in this process."""

    answered = False
    reason = ""
    asked_at = 0.0
    told = False


_state, _lock = _State(), threading.Lock()


def hub_silence() -> str:
    """Why the hub cannot be reached; "" where it answers, or is not to be asked at all (`HF_HUB_OFFLINE`).

    Where it does not answer, this process and those that it starts go by the hub's cache from now on, at once.
    """
    from huggingface_hub import constants

    with _lock:
        if _state.reason and time.monotonic() - _state.asked_at > AGAIN_S:
            _state.reason, constants.HF_HUB_OFFLINE = "", False
            os.environ.pop(OFFLINE, None)
        if not (_state.reason or _state.answered or constants.is_offline_mode()):
            _state.reason, _state.asked_at = _ask(constants.ENDPOINT), time.monotonic()
            _state.answered = not _state.reason
            if _state.reason:
                constants.HF_HUB_OFFLINE, os.environ[OFFLINE] = True, "1"
        return _state.reason


def tell_cached(name: str) -> None:
    """Say, once, that what is in the hub's cache is used since the hub does not answer."""
    if _state.reason and not _state.told:
        _state.told = True
        rich.print(f"The hub cannot be reached ({_state.reason}): {name} is the one in its cache")


def _ask(address: str) -> str:
    """Why `address` does not answer; "" where it does, whatever it says."""
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
