"""The two text formats of Prometheus, written quickly.

The same bytes as prometheus_client's own encoders, which spend most of a scrape on escaping names that need none; ours
are all plain, see `AsdCollector`. Whatever else a scraper asks for is left to prometheus_client.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Sample
from prometheus_client.utils import floatToGoString

__all__ = ["WideGauge", "choose", "openmetrics", "text"]

Encoder = Callable[[Collector], bytes]

_number: Callable[[float], str] = floatToGoString
_ESCAPES = {ord("\\"): "\\\\", ord("\n"): "\\n", ord('"'): '\\"'}
_TEXT_ESCAPES = {ord("\\"): "\\\\", ord("\n"): "\\n"}
_KINDS = {"info": "gauge", "stateset": "gauge", "gaugehistogram": "histogram", "unknown": "untyped"}
_SUFFIXES = {"counter": "_total", "info": "_info"}


class WideGauge(GaugeMetricFamily):
    """A gauge of tens of thousands of series, which our encoders write without making a sample for each.

    Args:
        name: As in `GaugeMetricFamily`.
        documentation: As there.
        varying: The label that most series differ in; of all it comes first in the alphabet.
        labels: The other ones.
    """

    def __init__(self, name: str, documentation: str, varying: str, labels: Sequence[str]) -> None:
        self._groups: list[tuple[Sequence[str], Mapping[str, float]]] = []
        super().__init__(name, documentation, labels=(varying, *labels))

    def add(self, labels: Sequence[str], values: Mapping[str, float]) -> None:
        """Adds one series for each of `values`, by its varying label."""
        self._groups.append((labels, values))

    @property
    def samples(self) -> list[Sample]:
        """As other encoders want them."""
        names = self._labelnames
        return [
            Sample(self.name, dict(zip(names, (varying, *labels), strict=True)), value)
            for labels, values in self._groups
            for varying, value in values.items()
        ]

    @samples.setter
    def samples(self, none: list[Sample]) -> None:
        """`Metric` sets them to none at first."""

    def lines(self) -> Iterable[str]:
        """The series as both text formats write them."""
        first, *others = self._labelnames
        for labels, values in self._groups:
            rest = _labels(zip(others, labels, strict=True))
            for varying, value in values.items():
                # Within these bounds Go and Python write numbers alike.
                number = repr(value) if -1e6 < value < 1e6 else _number(value)
                yield f"{self.name}{{{_label(first, varying)},{rest}}} {number}\n"


def choose(accept: str) -> tuple[Encoder, str]:
    """The encoder for the header `Accept` of a request, and the content type of what it makes."""
    encoder, content_type = choose_encoder(accept)
    if any(wish in content_type for wish in ("escaping=dots", "escaping=values", "version=2")):
        return encoder, content_type
    return (openmetrics if content_type.startswith("application/openmetrics-text") else text), content_type


def text(registry: Collector) -> bytes:
    """The text format 0.0.4 and 1.0.0; it has no exemplars."""
    lines: list[str] = []
    for metric in registry.collect():
        name = metric.name + _SUFFIXES.get(metric.type, "")
        lines.append(f"# HELP {name} {metric.documentation.translate(_TEXT_ESCAPES)}\n")
        lines.append(f"# TYPE {name} {_KINDS.get(metric.type, metric.type)}\n")
        if isinstance(metric, WideGauge):
            lines.extend(metric.lines())
            continue
        lines.extend(f"{_series(sample)} {_number(sample.value)}\n" for sample in metric.samples)
    return "".join(lines).encode()


def openmetrics(registry: Collector) -> bytes:
    """OpenMetrics 1.0.0, with exemplars."""
    lines: list[str] = []
    for metric in registry.collect():
        lines.append(f"# HELP {metric.name} {metric.documentation.translate(_ESCAPES)}\n")
        lines.append(f"# TYPE {metric.name} {metric.type}\n")
        if metric.unit:
            lines.append(f"# UNIT {metric.name} {metric.unit}\n")
        if isinstance(metric, WideGauge):
            lines.extend(metric.lines())
            continue
        lines.extend(
            f"{_series(sample)} {_number(sample.value)}{_exemplar(sample.exemplar)}\n" for sample in metric.samples
        )
    lines.append("# EOF\n")
    return "".join(lines).encode()


def _series(sample: Sample) -> str:
    if not sample.labels:
        return sample.name
    return f"{sample.name}{{{_labels(sample.labels.items())}}}"


def _labels(labels: Iterable[tuple[str, str]]) -> str:
    return ",".join([_label(name, value) for name, value in sorted(labels)])


@functools.lru_cache(maxsize=8192)
def _label(name: str, value: str) -> str:
    return f'{name}="{value.translate(_ESCAPES)}"'


def _exemplar(exemplar: Exemplar | None) -> str:
    if exemplar is None:
        return ""
    when = "" if exemplar.timestamp is None else f" {exemplar.timestamp}"
    return f" # {{{_labels(exemplar.labels.items())}}} {_number(exemplar.value)}{when}"
