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
    """What is known of the hub in this process."""

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
            _state.reason = ""
            _go_offline(False)
        if not _state.reason and not _state.answered and not constants.is_offline_mode():
            _state.reason = _ask(constants.ENDPOINT)
            _state.answered, _state.asked_at = not _state.reason, time.monotonic()
            if _state.reason:
                _go_offline(True)
        return _state.reason


def tell_cached(name: str) -> None:
    """Say, once, that what is in the hub's cache is used since the hub does not answer."""
    if _state.reason and not _state.told:
        _state.told = True
        rich.print(f"The hub cannot be reached ({_state.reason}): {name} is the one in its cache")


def _go_offline(offline: bool) -> None:
    from huggingface_hub import constants

    constants.HF_HUB_OFFLINE = offline
    if offline:
        os.environ[OFFLINE] = "1"
    else:
        os.environ.pop(OFFLINE, None)


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
