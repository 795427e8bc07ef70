"""The endpoint of a node: an agent's ranks and events, and the agent's own process, at one address."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from asd.exporters.http.routes import start_server
from asd.exporters.http.server import HttpServer
from asd.exporters.http.tls_files import WebConfig
from asd.exporters.prometheus.agent import Agent
from asd.exporters.prometheus.collector import AsdCollector
from asd.exporters.prometheus.device_map import DeviceMap, name_device
from asd.exporters.prometheus.rows import clean


class NodeCollector(AsdCollector):
    """The metrics of what an agent knows, and of the agent itself.

    Args:
        agent: Follows the run folders of the node's ranks.
        devices: Tells the other names of a device.
    """

    def __init__(self, agent: Agent, devices: DeviceMap = name_device) -> None:
        super().__init__(agent.statuses, agent.ledger, alive=agent.alive, devices=devices)
        self.agent = agent

    def describe(self) -> Iterable[Metric]:
        """Returns every family; a scrape may ask for some by `name[]`."""
        yield from super().describe()
        yield from self._agent_families()

    def collect(self) -> Iterable[Metric]:
        """Returns every family with its samples."""
        yield from super().collect()
        yield from self._agent_families()

    def _agent_families(self) -> Iterable[Metric]:
        agent = self.agent
        problems = CounterMetricFamily("asd_agent_problems_total", "Problems of the agent itself.", labels=("reason",))
        for reason, count in agent.problems.items():
            problems.add_metric((reason,), count)
        yield problems
        for name, about, value in (
            (
                "asd_agent_last_poll_timestamp_seconds",
                "When the agent last looked at its files, in seconds since the epoch.",
                agent.last_poll,
            ),
            ("asd_agent_run_folders", "Folders in which the agent found something of a rank.", agent.run_folders),
            (
                "asd_agent_left_out_ranks",
                "Ranks of other machines in the run folders, which the agent skips.",
                agent.left_out,
            ),
        ):
            yield GaugeMetricFamily(name, about, value)
        behind, ready = (
            GaugeMetricFamily(f"asd_agent_{name}", about, labels=("folder",))
            for name, about in (
                ("behind_bytes", "Bytes of a run folder's event logs that the agent has still to read."),
                ("run_ready", "1 when the data that the agent serves of a run folder are up to date."),
            )
        )
        for folder, left in agent.behind.items():
            behind.add_metric((clean(str(folder)),), left)
            ready.add_metric((clean(str(folder)),), not left)
        yield from (behind, ready)


def serve_node(
    collector: NodeCollector, *, address: str = "127.0.0.1", port: int = 9464, web_config: WebConfig | None = None
) -> HttpServer:
    """Serves the metrics and events of an agent; whoever calls lets the agent work and closes both.

    Args:
        collector: The agent's metrics.
        address: An IP address or host name of this machine; `0.0.0.0` or `::` for all of its addresses.
        port: 0..65535; 0 picks a free one.
        web_config: Certificates; None for plain HTTP.
    """
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    agent = collector.agent
    return start_server(
        registry=registry,
        ledger_events=agent.journal.recent,
        ready=agent.ready,
        address=address,
        port=port,
        web_config=web_config,
        journal=agent.journal,
    )
