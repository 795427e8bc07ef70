"""The entry point `metrics` of environments that were installed before: it shows nothing."""

from __future__ import annotations

from asd.config import Config
from asd.event import Event
from asd.origin import Origin
from asd.rules.step.delivery import Sink

__all__ = ["open_metrics"]


def open_metrics(config: Config, origin: Origin) -> Sink:  # noqa: ARG001 - the signature of a sink factory
    """A sink that does nothing."""
    return _ignore


def _ignore(event: Event) -> None:
    """Does nothing."""
