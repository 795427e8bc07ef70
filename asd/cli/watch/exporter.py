"""Serves the metrics and events of all ranks of this node to Prometheus.

It reads what the ranks leave in their run folders and takes no part in any training: it may be started before, stopped
and started again at any time, and goes on where it was.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from asd.cli.shared.policy_options import add_strike_arguments, read_strike_policy
from asd.config import Config
from asd.errors import ConfigError

if TYPE_CHECKING:
    from asd.exporters.http.tls_files import WebConfig
    from asd.exporters.prometheus.agent import Agent
    from asd.exporters.prometheus.checkpoint_choice import CheckpointChoice
    from asd.exporters.prometheus.device_map import DeviceMap
    from asd.handler import Policy

__all__ = ["add_arguments", "run"]

_EXAMPLES = """\
Examples:
  asd exporter                                             the run in ASD_RUN_DIR, at http://127.0.0.1:9464/metrics
  asd exporter --run-dir job1 --run-dir job2 --address 0.0.0.0 --web-config web.yml
  asd exporter --textfile /var/lib/node_exporter/asd.prom --push http://gateway:9091
  asd exporter --checkpoints top:5                         with values and limits of the 5 checkpoints nearest to theirs
  curl 'http://127.0.0.1:9464/events?level=first&limit=10'

In Prometheus' configuration:
  scrape_configs:
    - job_name: asd
      scrape_interval: 15s
      static_configs:
        - targets: ["127.0.0.1:9464"]

With a web configuration that asks for certificates, add to the job:
      scheme: https
      tls_config: {ca_file: ca.pem, cert_file: prometheus.pem, key_file: prometheus.key}

It serves /metrics, /healthz, /readyz and /events; /events takes the filters since, until, device, rank, level, kind,
run and limit. The web configuration has the form that Prometheus' own exporters take; a change of it or of a
certificate is taken over without a restart.

Strikes are counted as `asd handler` and `asd report` count them: give all the same --strikes, --window and --many.

exit codes: 0 ended by SIGTERM, 1 the job failed, 2 wrong usage or a wrong setting, 130 interrupted."""

_DEFAULT_PORT = 9464
_SIGNALS = {signal.SIGTERM, signal.SIGINT}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd exporter`."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "--run-dir",
        action="append",
        type=Path,
        metavar="FOLDER",
        help="folder of a run; may be given several times (default: ASD_RUN_DIR)",
    )
    parser.add_argument("--address", help="address to serve on (default: metrics_address of ASD_OPTIONS, or 127.0.0.1)")
    parser.add_argument("--port", default=str(_DEFAULT_PORT), help="0 picks a free one (default: %(default)s)")
    parser.add_argument(
        "--web-config", type=Path, metavar="FILE", help="TLS and client certificates (default: plain HTTP)"
    )
    parser.add_argument(
        "--checkpoints",
        default="none",
        metavar="WHICH",
        help="which checkpoints get series of their own: none, all, top:N or a regular expression (default: none)",
    )
    add_strike_arguments(parser)
    parser.add_argument("--poll", default="1", metavar="SECONDS", help="how often to look (default: %(default)s)")
    parser.add_argument(
        "--host",
        metavar="NAME",
        help="take in only what came from this node, for a run folder that several share (default: ASD_NODE, or all)",
    )
    parser.add_argument("--device-map", type=Path, metavar="FILE", help="JSON with the physical ids of the devices")
    parser.add_argument(
        "--state",
        type=Path,
        metavar="FILE",
        help="where it keeps its counts and how far it has read (default: in the first run folder)",
    )
    parser.add_argument("--textfile", type=Path, metavar="FILE.prom", help="write the metrics for node_exporter too")
    parser.add_argument(
        "--npu-exporter-file", type=Path, metavar="FILE", help="write the devices' states for npu-exporter"
    )
    parser.add_argument("--push", metavar="URL", help="push the metrics to this Pushgateway too")
    parser.add_argument("--push-delete", action="store_true", help="delete at the end what was pushed")


def run(args: argparse.Namespace) -> int:
    """Serves until SIGTERM or an interrupt."""
    from asd.exporters.outlets import Outlets
    from asd.exporters.prometheus.agent import Agent
    from asd.exporters.prometheus.node import NodeCollector, serve_node

    logging.basicConfig(format="asd: %(message)s")
    wanted = _read(args, Config.from_env(os.environ))
    # Blocked here and waited for below: a handler could come between any two writes of the agent.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        agent = Agent(
            wanted.run_dirs, args.state, host=wanted.host, poll_interval=wanted.poll_seconds, policy=wanted.policy
        )
        try:
            collector = NodeCollector(agent, wanted.checkpoints, wanted.devices)
            outlets = Outlets(
                collector,
                textfile=args.textfile,
                npu_exporter_file=args.npu_exporter_file,
                push_url=args.push,
                node=wanted.host,
                on_failure=agent.outlet_failed,
            )
            server = serve_node(collector, address=wanted.address, port=wanted.port, web_config=wanted.web_config)
            try:
                folders = ", ".join(map(str, wanted.run_dirs))
                print(f"asd: serving {folders} at {server.url}/metrics", file=sys.stderr, flush=True)
                ended_by = _run_until_signal(agent, outlets.write)
            finally:
                outlets.close(delete=args.push_delete)
                server.close()
        finally:
            agent.close()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if ended_by == signal.SIGINT:
        raise KeyboardInterrupt
    return 0


class _Wanted(NamedTuple):
    """The options, read and checked."""

    run_dirs: list[Path]
    host: str
    address: str
    port: int
    web_config: WebConfig | None
    poll_seconds: float
    checkpoints: CheckpointChoice
    devices: DeviceMap
    policy: Policy


def _read(args: argparse.Namespace, config: Config) -> _Wanted:
    from asd.exporters.http.tls_files import WebConfig
    from asd.exporters.prometheus.checkpoint_choice import CheckpointChoice
    from asd.exporters.prometheus.device_map import name_device, read_device_map

    run_dirs = args.run_dir or [Path(config.run_dir)]
    host = args.host if args.host is not None else config.node
    return _Wanted(
        run_dirs=run_dirs,
        host=host,
        address=args.address if args.address is not None else config.metrics_address,
        port=_port("--port", args.port),
        web_config=WebConfig(args.web_config) if args.web_config is not None else None,
        poll_seconds=_seconds("--poll", args.poll),
        checkpoints=CheckpointChoice.parse(args.checkpoints),
        devices=read_device_map(args.device_map, host) if args.device_map else name_device,
        policy=read_strike_policy(args),
    )


def _run_until_signal(agent: Agent, after_poll: Callable[[], None]) -> int:
    """Lets the agent work; returns the signal that ended it.

    Raises:
        Exception: Whatever ended the agent instead.
    """
    stop = threading.Event()
    failures: list[Exception] = []

    def work() -> None:
        try:
            agent.run(stop, after_poll)
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


def _port(option: str, text: str) -> int:
    if not re.fullmatch("[0-9]{1,5}", text, re.ASCII) or int(text) > 65535:
        raise ConfigError(option, text, "valid is a port from 1 to 65535, or 0 to have a free one picked")
    return int(text)


def _seconds(option: str, text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,6})?", text, re.ASCII) or not 0.05 <= float(text) <= 3600:
        raise ConfigError(option, text, "valid is a number of seconds from 0.05 to 3600")
    return float(text)
