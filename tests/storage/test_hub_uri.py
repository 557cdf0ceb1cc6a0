"""A hub that does not answer: said within seconds, once, and its cache goes on serving."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest
from huggingface_hub import constants

from distilbench.data.text import open_text
from distilbench.encoders.encoder import EncoderSpec
from distilbench.errors import InputError
from distilbench.prepare.augment.back_translation import _config
from distilbench.storage import hub


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A machine that takes connections and says nothing, as the hub's address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        monkeypatch.setattr(hub, "ANSWER_S", 0.5)
        monkeypatch.setattr(hub, "_told", threading.Event())
        hub.hub_silence.cache_clear()
        yield server
        hub.hub_silence.cache_clear()


def test_a_silent_hub_is_said_once(asked: socket.socket, capsys: pytest.CaptureFixture[str]) -> None:
    assert hub.hub_silence().startswith("http://127.0.0.1:")
    wanted = r"encoder 'me/mine': no such folder, and not to be had from the hub \(it cannot be reached, http://127"
    with pytest.raises(InputError, match=wanted):
        EncoderSpec("me/mine").identity()
    with pytest.raises(InputError, match=r"encoder 'me/mine': cannot be loaded: the hub cannot be reached"):
        EncoderSpec("me/mine").load()
    with pytest.raises(InputError, match=r"^hf:me/mine: the hub cannot be reached: http://127\.0\.0\.1:\d+"):
        list(open_text("hf:me/mine"))
    asked.settimeout(0.1)
    asked.accept()[0].close()
    with pytest.raises(TimeoutError):  # nobody asked again
        asked.accept()
    assert os.environ["HF_HUB_OFFLINE"] == "1", "processes that are started go by the cache at once"
    hub.tell_cached("encoder a/b")
    hub.tell_cached("encoder c/d")
    assert capsys.readouterr().out.count("cannot be reached") == 1


def test_a_translator_of_a_silent_hub_is_refused_at_once(asked: socket.socket) -> None:
    wanted = r"'me/there' has no configuration: the hub cannot be reached, http://127\.0\.0\.1:\d+"
    with pytest.raises(InputError, match=wanted):
        _config(EncoderSpec("me/there"))
    asked.settimeout(0.1)
    asked.accept()[0].close()
    with pytest.raises(TimeoutError):
        asked.accept()


def test_offline_by_the_users_will_it_is_not_asked(asked: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub, "_ask", lambda address: pytest.fail("the hub was asked"))
    assert hub.hub_silence() == ""
