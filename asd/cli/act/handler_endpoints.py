"""What `asd handler` serves: its metrics and what it published."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from asd.cli.shared.options import matching
from asd.cli.shared.printable import printable
from asd.event import Event
from asd.handler.handler_counts import HandlerCounts

if TYPE_CHECKING:
    from asd.exporters.http.tls_files import WebConfig

__all__ = ["Endpoints", "Shown", "add_endpoint_arguments", "read_endpoints", "say"]


class Shown(NamedTuple):
    """What of a handler is served.

    Attributes:
        counts: For `/metrics`.
        published: For `/events`.
        nothing_found: For `/readyz`: why it is not ready; empty when it is.
    """

    counts: HandlerCounts
    published: Callable[[], Sequence[Event]]
    nothing_found: Callable[[], str]


class Endpoints(NamedTuple):
    """Where to serve what.

    Attributes:
        metrics_at: Address and port of the metrics; None for none.
        web_config: File with the certificates; None for plain HTTP.
    """

    metrics_at: tuple[str, int] | None
    web_config: Path | None

    @contextlib.contextmanager
    def metrics(self, shown: Shown) -> Iterator[None]:
        """Serves metrics and what was published while it lasts."""
        if self.metrics_at is None:
            yield
            return
        from asd.exporters.http.routes import start_server
        from asd.exporters.prometheus.handler import handler_registry

        address, port = self.metrics_at
        server = start_server(
            registry=handler_registry(shown.counts),
            ledger_events=shown.published,
            ready=shown.nothing_found,
            address=address,
            port=port,
            web_config=self._web_config(),
        )
        say(f"metrics are served at {server.url}/metrics")
        try:
            yield
        finally:
            server.close()

    def _web_config(self) -> WebConfig | None:
        from asd.exporters.http.tls_files import WebConfig

        return WebConfig(self.web_config) if self.web_config is not None else None


def add_endpoint_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of what is served."""
    port = r"6553[0-5]|655[0-2]\d|65[0-4]\d\d|6[0-4]\d{3}|[0-5]?\d{1,4}"
    place = matching(f".+:({port})", "ADDRESS:PORT, for example 127.0.0.1:9465")
    parser.add_argument("--metrics", type=place, metavar="ADDRESS:PORT", help="serve the handler's own metrics there")
    parser.add_argument(
        "--web-config", type=Path, metavar="FILE", help="TLS and client certificates there (default: plain HTTP)"
    )


def read_endpoints(args: argparse.Namespace) -> Endpoints:
    """What the options say."""
    return Endpoints(_place(args.metrics), args.web_config)


def _place(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    address, _, port = text.rpartition(":")
    return address.strip("[]"), int(port)


def say(sentence: str) -> None:
    """Tells people something on standard error."""
    print(f"asd handler: {printable(sentence)}", file=sys.stderr, flush=True)
