"""Signs of life: long work says now and then that it goes on, and whoever watches it is told."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token

Listener = Callable[[], None]
Subscription = Token[Listener | None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def beat() -> None:
    """The work of this thread has got a little further; costs nothing where nobody watches."""
    listener = _listener.get()
    if listener is not None:
        listener()


def subscribe(listener: Listener) -> Subscription:
    """From now on `listener` is told of this thread's work, until `unsubscribe` is given what this returns."""
    return _listener.set(listener)


def unsubscribe(token: Subscription) -> None:
    """Whoever listened before is told again."""
    _listener.reset(token)
