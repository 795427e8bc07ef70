"""Serves the metrics and events of all ranks of this node to Prometheus.

It reads what the ranks leave in their run folders and takes no part in any training: it may be started before, stopped
and started again at any time, and goes on where it was.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from asd.cli.shared.options import add_strike_arguments, number, read_strike_policy, whole_number
from asd.config import Config

if TYPE_CHECKING:
    from asd.exporters.prometheus.agent import Agent

__all__ = ["add_arguments", "run"]

_EXAMPLES = """\
Examples:
  asd exporter                                             the run in ASD_RUN_DIR, at http://127.0.0.1:9464/metrics
  asd exporter --run-dir job1 --run-dir job2 --address 0.0.0.0 --web-config web.yml
  asd exporter --checkpoints 5                             with values and limits of the 5 checkpoints nearest to theirs
  curl 'http://127.0.0.1:9464/events?limit=10'

In Prometheus' configuration:
  scrape_configs:
    - job_name: asd
      scrape_interval: 15s
      static_configs:
        - targets: ["127.0.0.1:9464"]

It serves /metrics, /healthz, /readyz and /events. The web configuration has the form that Prometheus' own exporters
take; a change of it or of a certificate is taken over without a restart.

Strikes are counted as `asd handler` and `asd report` count them: give all the same --strikes, --window and --many.

exit codes: 0 ended by SIGTERM, 1 the job failed, 2 wrong usage or a wrong setting, 130 interrupted."""

_SIGNALS = {signal.SIGTERM, signal.SIGINT}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd exporter`."""
    parser.epilog = _EXAMPLES

    def add(name: str, kind: Callable[[str], object], metavar: str, words: str) -> None:
        parser.add_argument(name, type=kind, metavar=metavar, help=words)

    parser.add_argument(
        "--run-dir",
        action="append",
        type=Path,
        metavar="D",
        help="folder of a run; may be given several times (default: ASD_RUN_DIR)",
    )
    add("--address", str, "A", "address to serve on (default: 127.0.0.1)")
    add("--port", whole_number(0, 65535), "P", "port to serve on; 0 picks a free one (default: 9464)")
    add("--web-config", Path, "FILE", "TLS and client certificates (default: plain HTTP)")
    add(
        "--checkpoints",
        whole_number(0, 10_000),
        "N",
        "series of the N nearest to their limit (default: 0)",
    )
    add_strike_arguments(parser)
    add("--poll", number(0.05, 3600), "SECONDS", "how often to look (default: 1)")
    add("--host", str, "NAME", "take in only what came from this node, in a shared folder (default: ASD_NODE, or all)")
    add("--device-map", Path, "FILE", "JSON with the physical ids of the devices (default: npu-smi)")
    add("--state", Path, "FILE", "its database of events and counts (default: in the first run folder)")
    parser.set_defaults(address="127.0.0.1", port=9464, poll=1.0, checkpoints=0)


def run(args: argparse.Namespace) -> int:
    """Serves until SIGTERM or an interrupt."""
    from asd.exporters.http.tls_files import WebConfig
    from asd.exporters.prometheus.agent import Agent
    from asd.exporters.prometheus.device_map import read_device_map
    from asd.exporters.prometheus.node import NodeCollector, serve_node
    from asd.exporters.prometheus.npu_smi import npu_smi_map

    logging.basicConfig(format="asd: %(message)s")
    config = Config.from_env(os.environ)
    run_dirs = args.run_dir or [Path(config.run_dir)]
    host = config.node if args.host is None else args.host
    web_config = None if args.web_config is None else WebConfig(args.web_config)
    devices = read_device_map(args.device_map, host) if args.device_map else npu_smi_map()
    # Blocked here and waited for below: a handler could come between any two writes of the agent.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        more = {"policy": read_strike_policy(args), "devices": devices, "checkpoints": args.checkpoints}
        agent = Agent(run_dirs, args.state, host=host, poll_interval=args.poll, **more)
        try:
            collector = NodeCollector(agent, devices)
            server = serve_node(collector, address=args.address, port=args.port, web_config=web_config)
            try:
                folders = ", ".join(map(str, run_dirs))
                print(f"asd: serving {folders} at {server.url}/metrics", file=sys.stderr, flush=True)
                ended_by = _run_until_signal(agent)
            finally:
                server.close()
        finally:
            agent.close()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if ended_by == signal.SIGINT:
        raise KeyboardInterrupt
    return 0


def _run_until_signal(agent: Agent) -> int:
    """Lets the agent work; returns the signal that ended it.

    Raises:
        Exception: Whatever ended the agent instead.
    """
    stop = threading.Event()
    failures: list[Exception] = []

    def work() -> None:
        try:
            agent.run(stop)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=work, name="asd-agent")
    thread.start()
    received = None
    try:
        while received is None and thread.is_alive():
            received = signal.sigtimedwait(_SIGNALS, 0.5)
    finally:
        stop.set()
        thread.join()
    if failures:
        raise failures[0]
    return received.si_signo if received is not None else signal.SIGTERM
