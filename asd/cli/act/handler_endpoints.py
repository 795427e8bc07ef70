"""Endpoints of `asd handler`: its metrics and the events that it published."""

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from asd.cli.shared.options import wrong
from asd.cli.shared.progress import write_line
from asd.errors import ConfigError, printable
from asd.event import Event
from asd.handler.handler_counts import HandlerCounts


def add_endpoint_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the endpoints."""
    parser.add_argument("--metrics", type=_place, metavar="ADDRESS:PORT", help="serve the handler's own metrics here")
    parser.add_argument(
        "--web-config", type=Path, metavar="FILE", help="TLS and client certificates of --metrics (default: plain HTTP)"
    )


def _place(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    if not (address and port.isdecimal() and len(port) <= 5 and int(port) < 65536):
        raise wrong(text, "it must be ADDRESS:PORT, for example 127.0.0.1:9465")
    return address.strip("[]"), int(port)


@contextlib.contextmanager
def metrics_served(
    args: argparse.Namespace, counts: HandlerCounts, published: Callable[[], Sequence[Event]], ready: Callable[[], str]
) -> Iterator[None]:
    """Serves metrics and published events while it lasts, if the options give an address.

    Args:
        args: The options.
        counts: Counts for `/metrics`.
        published: Returns the events for `/events`.
        ready: Returns for `/readyz` the reason why it is not ready; empty when it is.
    """
    if args.metrics is None:
        if args.web_config is not None:
            raise ConfigError("--web-config", str(args.web_config), "it goes with --metrics")
        yield
        return
    from asd.exporters.http.routes import start_server
    from asd.exporters.http.tls_files import WebConfig
    from asd.exporters.prometheus.handler import handler_registry

    address, port = args.metrics
    server = start_server(
        registry=handler_registry(counts),
        ledger_events=published,
        ready=ready,
        address=address,
        port=port,
        web_config=WebConfig(args.web_config) if args.web_config is not None else None,
    )
    say(f"metrics are served at {server.url}/metrics")
    try:
        yield
    finally:
        server.close()


def say(sentence: str) -> None:
    """Prints a sentence on standard error."""
    write_line(sys.stderr, f"asd handler: {printable(sentence)}")
