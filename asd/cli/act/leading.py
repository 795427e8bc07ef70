"""The option `--lease`: one of several handlers acts, and the others stand by."""

from __future__ import annotations

import argparse
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from asd.cli.act.handler_endpoints import say
from asd.errors import ConfigError, StateError
from asd.handler import Store
from asd.handler.handler import LED_BY

if TYPE_CHECKING:
    from asd.exporters.kubernetes.lease import KubeLease

_GLANCE_SECONDS = 0.2


def add_lease_argument(parser: argparse.ArgumentParser) -> None:
    """Adds the option."""
    parser.add_argument(
        "--lease",
        metavar="NAMESPACE/NAME",
        help="act only while this handler holds this Lease of Kubernetes; the other handlers, each with its own "
        "database, stand by",
    )


def read_lease(args: argparse.Namespace) -> KubeLease | None:
    """Reads the option; None without it."""
    if args.lease is None:
        return None
    if args.once:
        raise ConfigError("--lease", args.lease, "it does not go with --once")
    from asd.exporters.kubernetes.lease import KubeLease

    return KubeLease(args.lease)


def check_leads(store: Store) -> None:
    """Raises if another handler acts, so that a command cannot change its decisions."""
    holder = store.meta(LED_BY)
    if holder:
        raise StateError(f"the handler of {store.path} stands by; give this command where {holder} runs, which acts.")


class Leading:
    """Leadership of this process: it reports which handler acts, and exits at once when it may act no more.

    Args:
        lease: The Lease; None where this handler is the only one.
        wake: Called in another thread when this handler begins to act.
    """

    def __init__(self, lease: KubeLease | None, wake: Callable[[], None]) -> None:
        self._lease = lease
        self._wake = wake
        self._acted: bool | None = None
        self._said = ""
        self.waiting = ""  # why the acting handler is not known yet; empty when it is

    @contextlib.contextmanager
    def held(self, stop: threading.Event) -> Iterator[bool]:
        """Tries to hold the Lease while it lasts.

        Args:
            stop: Ends the waiting.

        Yields:
            Whether the acting handler is known.
        """
        if self._lease is None:
            yield True
            return
        self._lease.start(self._lost, self._wake)
        try:
            while not self._lease.looked and not stop.wait(_GLANCE_SECONDS):
                self._tell_problem()
                self.waiting = f"who acts is not known: {self._lease.problem or 'the Lease was not read yet'}"
            self.waiting = ""
            yield self._lease.looked
        finally:
            self._lease.close()

    def tell(self, *, acts: bool) -> None:
        """Reports which handler acts, when that has changed."""
        if self._lease is None:
            return
        self._tell_problem()
        if acts != self._acted and acts == self._lease.acts:  # else it is about to change
            self._acted = acts
            place, holder = f"Lease {self._lease.namespace}/{self._lease.name}", self._lease.holder or "nobody"
            say(f"this handler acts: it holds the {place}." if acts else f"it stands by: {holder} holds the {place}.")

    def _tell_problem(self) -> None:
        problem = self._lease.problem if self._lease is not None else ""
        if problem != self._said:
            self._said = problem
            if problem:
                say(f"{problem}; it is tried again.")

    def _lost(self) -> None:
        say("the Lease could not be renewed in time; a different handler may act soon, so this one ends now.")
        os._exit(1)  # at any point: the files are whole, and the next start resumes from them
