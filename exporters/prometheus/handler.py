"""Metrics of a fault handler about itself; every series exists at 0 from the start."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from asd.exporters.prometheus.device_map import name_device
from asd.exporters.prometheus.rows import clean
from asd.exporters.report.fleet import groups
from asd.handler.handler_counts import HandlerCounts

_BY = ("model", "firmware", "driver", "cann")
_MOST_GROUPS = 100  # an agent may report any names

_NUMBERS = {
    "acting": "1 for the handler that acts, 0 for one that stands by.",
    "circuit_open": "1 while the circuit breaker is open.",
    "devices_known": "Known devices.",
    "devices_isolated": "Devices that are isolated, or about to be.",
    "devices_refused": (
        "Devices that the scheduler has refused, or failed, to isolate or to release so far; it is retried."
    ),
    "clock_difference_seconds": "How far the clock of an agent is from this one, the largest of all.",
    "run_folders": "Folders in which the handler found something of a rank.",
    "agents_unknown": "1 while the list of agents or of jobs cannot be read, or no agent is in its list.",
    "last_event_timestamp_seconds": "When an event was last processed, in seconds since the epoch; 0 before the first.",
    "last_look_timestamp_seconds": "When the handler last looked for events, in seconds since the epoch.",
    "events_total": "Events processed.",
    "refused_events_total": (
        "Events that their agent may not report, such as of devices of other nodes; they were refused."
    ),
    "missed_events_total": "Events that agents dropped before they were fetched, because there were too many.",
    "agent_failures_total": "Failed requests to agents.",
    "failed_tries_total": "Requests that the scheduler refused or failed.",
}
"""Help texts by the metric's name without `asd_handler_`; without unit and kind it is the number's name."""


class HandlerCollector(Collector):
    """Collector of a handler's counts.

    Args:
        counts: Counts of the handler.
    """

    def __init__(self, counts: HandlerCounts) -> None:
        self._counts = counts

    def collect(self) -> Iterable[Metric]:
        """Yields all metrics."""
        counts, numbers = self._counts, self._counts.numbers.copy()
        for name, about in _NUMBERS.items():
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            number = numbers.get(name.removesuffix("_total").removesuffix("_timestamp_seconds"), 0)
            yield kind(f"asd_handler_{name}", about, float(number))
        agents = counts.agents.copy()
        yield GaugeMetricFamily("asd_handler_agents", "Agents that events are pulled from.", len(agents))
        yield GaugeMetricFamily(
            "asd_handler_agents_unreachable",
            "Agents that cannot be reached, or send invalid data; their stored events are fetched later.",
            sum(not is_up for is_up in agents.values()),
        )
        up = GaugeMetricFamily("asd_handler_agent_up", "Whether an agent can be reached.", labels=["agent"])
        for place, is_up in agents.items():
            up.add_metric([place], is_up)
        yield up
        out = GaugeMetricFamily(
            "asd_handler_device_isolated", "1 for each isolated device.", labels=["node", "device", "id"]
        )
        for host, device, number in counts.out:
            out.add_metric([host, device, str(number) if number >= 0 else name_device(host, device).id], 1)
        yield out
        actions = CounterMetricFamily("asd_handler_actions_total", "Decisions, by action.", labels=["action"])
        for action, count in counts.actions.copy().items():
            actions.add_metric([action], count)
        yield actions
        days, faults = (
            GaugeMetricFamily(f"asd_handler_fleet_{name}", about, labels=_BY)
            for name, about in (
                ("device_days", "Days in which devices were watched in trainings, summed, as their agents report."),
                ("faults", "Devices that were found faulty since then; those of one node within a day are one."),
            )
        )
        for group in sorted(groups(*counts.fleet, *_BY), key=lambda each: -each.device_days)[:_MOST_GROUPS]:
            days.add_metric(list(map(clean, group.names)), group.device_days)
            faults.add_metric(list(map(clean, group.names)), group.faults)
        yield from (days, faults)


def handler_registry(counts: HandlerCounts) -> CollectorRegistry:
    """Returns a registry with only the metrics of a handler."""
    registry = CollectorRegistry()
    registry.register(HandlerCollector(counts))
    return registry
