"""The endpoint of a node: an agent's ranks and events, and the agent's own process, at one address."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, ProcessCollector

from asd.exporters.http.routes import start_server
from asd.exporters.http.server import HttpServer
from asd.exporters.http.tls_files import WebConfig
from asd.exporters.prometheus.agent import Agent
from asd.exporters.prometheus.checkpoint_choice import CheckpointChoice
from asd.exporters.prometheus.collector import AsdCollector
from asd.exporters.prometheus.device_map import DeviceMap, name_device

__all__ = ["collector_of", "serve_node"]

_NO_CHECKPOINTS = CheckpointChoice()


def collector_of(
    agent: Agent, checkpoints: CheckpointChoice = _NO_CHECKPOINTS, devices: DeviceMap = name_device
) -> AsdCollector:
    """The metrics of what `agent` knows.

    Args:
        agent: Follows the run folders of the node's ranks.
        checkpoints: Which checkpoints get series of their own.
        devices: Tells the other names of a device.
    """
    return AsdCollector(
        agent.statuses,
        agent.ledger,
        checkpoints=checkpoints,
        alive=agent.alive,
        devices=devices,
        problems=agent.problems,
        last_poll=agent.last_poll,
        run_folders=agent.run_folders,
        left_out=lambda: agent.left_out,
    )


def serve_node(
    agent: Agent,
    collector: AsdCollector | None = None,
    *,
    address: str = "127.0.0.1",
    port: int = 9464,
    web_config: WebConfig | None = None,
) -> HttpServer:
    """Serves what `agent` knows; whoever calls lets the agent work and closes both.

    Args:
        agent: Follows the run folders of the node's ranks.
        collector: Its metrics, from `collector_of`; without checkpoints when not given.
        address: As in `asd.exporters.http.routes.start_server`.
        port: As there.
        web_config: As there.

    Raises:
        ConfigError: As there.
    """
    registry = CollectorRegistry()
    registry.register(collector if collector is not None else collector_of(agent))
    ProcessCollector(registry=registry)
    return start_server(
        registry=registry,
        ledger_events=agent.ledger.events,
        ready=agent.ready,
        address=address,
        port=port,
        web_config=web_config,
        journal=agent.journal,
    )
