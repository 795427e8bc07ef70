"""The session that is recording, if there is one: what every hook asks first."""

from __future__ import annotations

from mindspore import context

from asd.operators.debugger.hooks.session import Session

__all__ = ["eager_session", "session", "set_session"]

_session: Session | None = None


def set_session(session: Session | None) -> None:
    """Begins or ends recording."""
    global _session
    _session = session


def session() -> Session | None:
    """The session, whoever asks."""
    return _session


def eager_session() -> Session | None:
    """The session for a call that Python makes in PyNative, from the network itself; else None."""
    if _session is None or not _session.here() or context.get_context("mode") != context.PYNATIVE_MODE:
        return None
    return _session
