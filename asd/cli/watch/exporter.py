"""Serves the metrics and events of all ranks of this node to Prometheus.

It reads the files of the ranks in their run folders and takes no part in any training. It can be started before a
training and restarted at any time; it continues where it stopped.
"""

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from asd.cli.shared.options import add_run_dir, add_strike_arguments, read_strike_policy, whole_number
from asd.cli.shared.progress import write_line
from asd.cli.shared.stopping import stopped
from asd.config import Config

_EXAMPLES = """\
Examples:
  asd exporter                                             the run in ASD_RUN_DIR, at http://127.0.0.1:9464/metrics
  asd exporter --run-dir job1 --run-dir job2 --address 0.0.0.0 --web-config web.yml
  asd exporter --checkpoints 5                             adds the 5 checkpoints nearest to their limits
  curl 'http://127.0.0.1:9464/events?limit=10'

It serves /metrics, /healthz, /readyz and /events. The web configuration has the form of Prometheus' own exporters;
a change of it or of a certificate takes effect without a restart.

Pass the same --strikes, --window and --many to `asd handler`, `asd report` and this command.

exit codes: 0 ended by SIGTERM, 1 the job failed, 2 wrong usage or a wrong setting, 130 interrupted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd exporter`."""
    parser.epilog = _EXAMPLES

    def add(name: str, kind: Callable[[str], object], metavar: str, words: str) -> None:
        parser.add_argument(name, type=kind, metavar=metavar, help=words)

    add_run_dir(parser, action="append", help="folder of a run; may be given several times (default: ASD_RUN_DIR)")
    add("--address", str, "A", "address to serve on (default: 127.0.0.1)")
    add("--port", whole_number(0, 65535), "P", "port to serve on; 0 picks a free one (default: 9464)")
    add("--web-config", Path, "FILE", "TLS and client certificates (default: plain HTTP)")
    add("--checkpoints", whole_number(0, 10_000), "N", "add the N checkpoints nearest to their limits (default: 0)")
    add_strike_arguments(parser)
    add("--host", str, "NAME", "in a shared folder, read only data of this node (default: ASD_NODE, or all)")
    add("--device-map", Path, "FILE", "JSON with the physical ids of the devices (default: from npu-smi)")
    add("--state", Path, "FILE", "database of events and counts (default: in the first run folder)")
    parser.set_defaults(address="127.0.0.1", port=9464, checkpoints=0)


def run(args: argparse.Namespace) -> int:
    """Serves until SIGTERM or an interrupt."""
    from asd.exporters.http.tls_files import WebConfig
    from asd.exporters.prometheus.agent import Agent
    from asd.exporters.prometheus.device_map import npu_smi_map, read_device_map
    from asd.exporters.prometheus.node import NodeCollector, serve_node

    logging.basicConfig(format="asd: %(message)s")
    config = Config.from_env(os.environ)
    run_dirs = args.run_dir or [Path(config.run_dir)]
    host = config.node if args.host is None else args.host
    web_config = None if args.web_config is None else WebConfig(args.web_config)
    devices = read_device_map(args.device_map, host) if args.device_map else npu_smi_map()
    more = {"policy": read_strike_policy(args), "devices": devices, "checkpoints": args.checkpoints}
    with stopped() as stop, contextlib.closing(Agent(run_dirs, args.state, host=host, **more)) as agent:
        server = serve_node(NodeCollector(agent, devices), address=args.address, port=args.port, web_config=web_config)
        try:
            folders = ", ".join(map(str, run_dirs))
            write_line(sys.stderr, f"asd: serving {folders} at {server.url}/metrics")
            agent.run(stop)
        finally:
            server.close()
    return 0
