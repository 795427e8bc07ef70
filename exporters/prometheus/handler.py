"""The metrics of a fault handler about itself; every series exists at 0 from the start."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from asd.exporters.prometheus.device_map import name_device
from asd.handler.handler_counts import HandlerCounts

__all__ = ["HandlerCollector", "handler_registry"]

_GAUGES: tuple[tuple[str, str, Callable[[HandlerCounts], float]], ...] = (
    ("asd_handler_acting", "1 for the handler that acts, 0 for one that stands by.", lambda counts: counts.acting),
    ("asd_handler_circuit_open", "1 while the circuit breaker is open.", lambda counts: counts.circuit_open),
    ("asd_handler_devices_known", "Devices heard of.", lambda counts: counts.devices_known),
    ("asd_handler_devices_isolated", "Devices that are out, or about to be.", lambda counts: counts.devices_isolated),
    (
        "asd_handler_devices_refused",
        "Devices that the engine has refused, or failed, to isolate or to release so far; it is asked again.",
        lambda counts: counts.devices_refused,
    ),
    (
        "asd_handler_run_folders",
        "Folders in which the handler found something of a rank.",
        lambda counts: counts.run_folders,
    ),
    ("asd_handler_agents", "Agents that events are pulled from.", lambda counts: len(counts.agents)),
    (
        "asd_handler_agents_unreachable",
        "Those of them that can't be reached; what they keep is fetched later.",
        lambda counts: sum(not up for up in counts.agents.copy().values()),
    ),
    (
        "asd_handler_agents_unknown",
        "1 while who the agents are can't be looked up, or there are none, where some are to be.",
        lambda counts: counts.agents_unknown,
    ),
    (
        "asd_handler_last_event_timestamp_seconds",
        "When an event was last taken in, in seconds since the epoch; 0 before the first.",
        lambda counts: counts.last_event,
    ),
    (
        "asd_handler_last_look_timestamp_seconds",
        "When the handler last looked for events, in seconds since the epoch.",
        lambda counts: counts.last_look,
    ),
)

_COUNTERS: tuple[tuple[str, str, Callable[[HandlerCounts], float]], ...] = (
    ("asd_handler_events_total", "Events taken in.", lambda counts: counts.events),
    (
        "asd_handler_refused_events_total",
        "Events that their agent may not tell, such as of devices of other nodes; they were refused.",
        lambda counts: counts.events_refused,
    ),
    (
        "asd_handler_missed_events_total",
        "Events that agents had dropped, for there were too many, before they were fetched.",
        lambda counts: counts.events_missed,
    ),
    (
        "asd_handler_agent_failures_total",
        "Times that an agent was asked in vain.",
        lambda counts: counts.agent_failures,
    ),
    (
        "asd_handler_failed_tries_total",
        "Times that the engine was asked and did not do it.",
        lambda counts: counts.failed_tries,
    ),
)


class HandlerCollector(Collector):
    """Collects what a handler counted.

    Args:
        counts: Where it is counted.
    """

    def __init__(self, counts: HandlerCounts) -> None:
        self._counts = counts

    def collect(self) -> Iterable[Metric]:
        """All metrics."""
        for name, about, read in _GAUGES:
            yield GaugeMetricFamily(name, about, value=float(read(self._counts)))
        for name, about, read in _COUNTERS:
            yield CounterMetricFamily(name, about, value=read(self._counts))
        up = GaugeMetricFamily("asd_handler_agent_up", "Whether an agent can be reached.", labels=["agent"])
        for place, is_up in self._counts.agents.copy().items():
            up.add_metric([place], is_up)
        yield up
        out = GaugeMetricFamily(
            "asd_handler_device_isolated", "1 for each device that is out.", labels=["node", "device", "id"]
        )
        for host, device in self._counts.out:
            out.add_metric([host, device, name_device(host, device).id], 1)
        yield out
        actions = CounterMetricFamily("asd_handler_actions_total", "Decisions, by what was done.", labels=["action"])
        for action, count in self._counts.actions.copy().items():
            actions.add_metric([action], count)
        yield actions


def handler_registry(counts: HandlerCounts) -> CollectorRegistry:
    """A registry with nothing but the metrics of a handler."""
    registry = CollectorRegistry()
    registry.register(HandlerCollector(counts))
    return registry
