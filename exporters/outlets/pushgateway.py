"""Metrics to a Pushgateway, for batch jobs that end before anyone scrapes them.

A Pushgateway keeps a group for ever, and a dead rank looks alive there: alert on `push_time_seconds`. Each rank is a
group of its own, with the key run, node and rank.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import urlsplit

from prometheus_client import delete_from_gateway, pushadd_to_gateway
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from asd.errors import ConfigError

__all__ = ["JOB", "KEY", "Pushgateway", "push"]

JOB = "asd"
KEY = ("run", "node", "rank")
"""The labels that tell the groups apart."""
_LONGEST_ANSWER = 200


class Pushgateway:
    """Pushes the metrics of every rank, each as a group of its own; what belongs to no rank goes with each of them.

    Args:
        url: Address of the Pushgateway, for example `http://127.0.0.1:9091`.
        timeout: Seconds that one request may take.

    Raises:
        ConfigError: `url` is no http or https address.
    """

    def __init__(self, url: str, *, timeout: float = 5.0) -> None:
        _check(url)
        self.url = url
        self.timeout = timeout
        self._pushed: dict[tuple[str, ...], dict[str, str]] = {}

    def push(self, registry: Collector) -> None:
        """Pushes what `registry` says now.

        Raises:
            ConnectionError: The Pushgateway can't be reached or refuses; one sentence says why.
        """
        metrics = list(registry.collect())
        for key in _groups(metrics):
            grouping = dict(zip(KEY, key, strict=True))
            push(self.url, _OneRank(metrics, grouping), grouping, timeout=self.timeout)
            self._pushed[key] = grouping

    def delete(self) -> None:
        """Deletes every group that was pushed, as at the end of a job whose metrics were scraped.

        Raises:
            ConnectionError: As `push`.
        """
        while self._pushed:
            key, grouping = next(iter(self._pushed.items()))
            try:
                delete_from_gateway(self.url, JOB, grouping_key=grouping, timeout=self.timeout)
            except (OSError, HTTPException) as error:
                raise ConnectionError(f"the metrics at {self.url} can't be deleted: {_reason(error)}") from error
            del self._pushed[key]


def push(url: str, registry: Collector, grouping: Mapping[str, str], *, timeout: float = 5.0) -> None:
    """Replaces the metrics of one group by what `registry` says.

    Args:
        url: Address of the Pushgateway.
        registry: What to push; a label of its samples that is in `grouping` too must have that value.
        grouping: The labels that name the group, beside `job="asd"`.
        timeout: Seconds that the request may take.

    Raises:
        ConfigError: `url` is no http or https address.
        ConnectionError: The Pushgateway can't be reached or refuses; one sentence says why.
    """
    _check(url)
    try:
        pushadd_to_gateway(url, JOB, registry, grouping_key=dict(grouping), timeout=timeout)
    except (OSError, HTTPException) as error:
        raise ConnectionError(f"the metrics can't be pushed to {url}: {_reason(error)}") from error


class _OneRank(Collector):
    """The samples of one group, and those of none."""

    def __init__(self, metrics: list[Metric], grouping: Mapping[str, str]) -> None:
        self._metrics = metrics
        self._grouping = grouping

    def collect(self) -> Iterator[Metric]:
        for metric in self._metrics:
            samples = [
                sample
                for sample in metric.samples
                if all(sample.labels.get(name, value) == value for name, value in self._grouping.items())
            ]
            if samples:
                part = Metric(metric.name, metric.documentation, metric.type, metric.unit)
                part.samples = samples
                yield part


def _groups(metrics: list[Metric]) -> list[tuple[str, ...]]:
    found = {
        tuple(sample.labels[name] for name in KEY): None
        for metric in metrics
        for sample in metric.samples
        if all(name in sample.labels for name in KEY)
    }
    return list(found)


def _check(url: str) -> None:
    valid = "it must be an http or https address such as http://127.0.0.1:9091"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError("--push", url, valid)


def _reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        with error:
            answer = error.read(_LONGEST_ANSWER).decode(errors="replace").strip()
        return f"it answered {error.code} {error.reason}" + (f": {answer.rstrip('.')}" if answer else "")
    reason = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError):
        return "it did not answer in time"
    if isinstance(reason, OSError) and reason.errno is not None and reason.errno > 0:
        return os.strerror(reason.errno)
    return str(reason).strip() or type(reason).__name__
