"""The quick encoders write the same bytes as prometheus_client's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.samples import Exemplar

from asd.exporters.http import exposition

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
NUMBERS = st.floats() | st.integers(-(2**53), 2**53) | st.booleans()
SAMPLES = st.lists(st.tuples(TEXTS, TEXTS, NUMBERS), max_size=5)


class Fixed:
    def __init__(self, families):
        self.families = families

    def collect(self):
        return self.families


@given(SAMPLES, TEXTS, NUMBERS, st.none() | st.floats(0, 1e10))
def test_every_kind_of_metric_is_written_as_prometheus_client_does(samples, text, number, when):
    gauge = GaugeMetricFamily("asd_one_seconds", text, labels=("z", "a"), unit="seconds")
    counter = CounterMetricFamily("asd_two_total", text, labels=("z", "a"))
    histogram = HistogramMetricFamily("asd_three", text, labels=("z", "a"))
    info = InfoMetricFamily("asd_four", text, value={"version": text})
    alone = GaugeMetricFamily("asd_five", text, value=number)
    exemplar = Exemplar({"event_id": text}, number, when)
    for one, other, value in samples:
        gauge.add_metric((one, other), value)
        counter.add_metric((one, other), value, exemplar=exemplar)
        histogram.add_metric((one, other), [("1.0", 2), ("+Inf", 3)], value)
    registry = Fixed([gauge, counter, histogram, info, alone])
    assert exposition.text(registry) == generate_latest(registry)
    assert exposition.openmetrics(registry) == generate_openmetrics(registry)


@given(
    st.lists(st.tuples(TEXTS, st.dictionaries(TEXTS, st.floats(), max_size=5)), max_size=3, unique_by=lambda x: x[0])
)
def test_a_wide_gauge_is_written_as_the_same_series_one_by_one(groups):
    wide = exposition.WideGauge("asd_one", "One.", "checkpoint", ("id", "node"))
    gauge = GaugeMetricFamily("asd_one", "One.", labels=("checkpoint", "id", "node"))
    for text, values in groups:
        wide.add((text, "7"), values)
        for name, value in values.items():
            gauge.add_metric((name, text, "7"), value)
    assert exposition.text(Fixed([wide])) == generate_latest(Fixed([gauge]))
    assert exposition.openmetrics(Fixed([wide])) == generate_openmetrics(Fixed([gauge]))
    assert generate_latest(Fixed([wide])) == generate_latest(Fixed([gauge]))  # by samples


@pytest.mark.parametrize("value", [999_999.0, 1e6, 1234567.8, 1e21, -1e6, -1234567.0, 1e-7, -0.0, float("-inf")])
def test_a_wide_gauge_writes_numbers_at_the_edges_as_others_do(value):
    wide, gauge = exposition.WideGauge("a", "A.", "b", ("c",)), GaugeMetricFamily("a", "A.", labels=("b", "c"))
    wide.add(("c",), {"b": value})
    gauge.add_metric(("b", "c"), value)
    assert exposition.text(Fixed([wide])) == generate_latest(Fixed([gauge]))


def test_metrics_that_prometheus_client_counts_itself_are_written_too():
    registry = CollectorRegistry()
    Counter("a", "A.", ["x"], registry=registry).labels("1").inc(exemplar={"id": "7"})
    Gauge("b", "B.", registry=registry).set(float("inf"))
    Histogram("c", "C.", registry=registry).observe(3)
    assert exposition.openmetrics(registry) == generate_openmetrics(registry)
    # Its text format makes a gauge of the time each counter was made, unless that is turned off.
    created = [line for line in generate_latest(registry).splitlines() if b"_created" in line]
    ours = [line for line in exposition.text(registry).splitlines() if b"_created" not in line]
    assert ours == [line for line in generate_latest(registry).splitlines() if line not in created]


@pytest.mark.parametrize(
    ("accept", "encoder", "content_type"),
    [
        ("", exposition.text, "text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", exposition.text, "text/plain; version=0.0.4; charset=utf-8"),
        ("text/plain;version=1.0.0", exposition.text, "text/plain; version=1.0.0"),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.1", exposition.openmetrics, "application/openm"),
        ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8", exposition.openmetrics, "application/op"),
    ],
)
def test_the_header_accept_chooses_the_format(accept, encoder, content_type):
    chosen, told = exposition.choose(accept)
    assert chosen is encoder
    assert told.startswith(content_type)


@pytest.mark.parametrize("wish", ["escaping=dots", "escaping=values"])
def test_other_ways_to_escape_are_left_to_prometheus_client(wish):
    registry = Fixed([GaugeMetricFamily("asd_one", "One.", value=1)])
    chosen, told = exposition.choose(f"application/openmetrics-text;version=1.0.0;{wish}")
    assert wish in told
    assert chosen(registry) == generate_openmetrics(registry, escaping=wish.partition("=")[2])
