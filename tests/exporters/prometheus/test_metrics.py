"""The metrics: every series from the start, nothing twice, and labels that come out as they went in."""

import math
import platform

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

import asd
from asd import Level
from asd.exporters.ledger import Ledger
from asd.exporters.prometheus.collector import AsdCollector
from asd.exporters.prometheus.device_map import DeviceNames
from asd.exporters.prometheus.rows import LEVELS, nearest
from asd.judge.status import Status
from tests.support.events import event_maker, made_of

RANK = {"run": "run1", "rank": 3, "host": "node7", "device": "Ascend:3"}
LABELS = {"run": "run1", "rank": "3", "node": "node7", "id": "3"}


def status(**changes):
    return made_of(Status, **{**RANK, **changes})


event = event_maker(**RANK, time=lambda step: 1e9 + step)


def registered(*statuses, events=(), **options):
    ledger = Ledger()
    for each in events:
        ledger.add(each)
    registry = CollectorRegistry()
    registry.register(AsdCollector(lambda: statuses, ledger, clock=lambda: 1e9 + 100, **options))
    return registry


def series(registry):
    """Every sample by name and labels; fails when there are two of one."""
    found = {}
    for family in registry.collect():
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def value(registry, name, **labels):
    return registry.get_sample_value(name, {**LABELS, **labels})


def test_a_rank_has_twenty_one_series_at_0_before_its_first_step():
    found = series(registry := registered(status()))
    assert len(found) == 1 + 21  # and asd_build_info
    assert {name for (name, _), number in found.items() if number} == {"asd_build_info", "asd_rank_info"}
    assert [value(registry, "asd_anomalies_total", level=level) for level in LEVELS] == [0, 0]


def test_lost_events_and_verdicts_have_series_once_there_are_some():
    registry = registered(status(dropped={"EventLog": 5}), events=[event(1, kind="replay", verdict="software")])
    assert len(series(registry)) == 1 + 23
    assert value(registry, "asd_events_dropped_total", sink="EventLog") == 5
    assert value(registry, "asd_replay_verdicts_total", verdict="software") == 1


def test_the_counts_of_a_rank_come_out():
    totals = "steps checks step_seconds check_seconds evidence_dropped"
    fields = {"step": "step"} | {name: f"{name}_total" for name in totals.split()}
    fields |= {"non_finite": "nonfinite_values_total", "refused": "refused_updates_total"}
    fields |= {"problems": "detector_problems_total"}
    fields |= {"last_check": "last_check_timestamp_seconds", "written": "status_timestamp_seconds"}
    numbers = dict(zip(fields, range(5, 100), strict=False))
    dropped, anomalies = {"EventLog": 5, "Mine": 6}, {"first": 2, "second": 1}
    registry = registered(status(active=True, dropped=dropped, anomalies=anomalies, **numbers))
    assert {field: value(registry, f"asd_{name}") for field, name in fields.items()} == numbers
    assert [value(registry, f"asd_{name}") for name in ("training_active", "rank_lost")] == [1, 0]
    assert [value(registry, "asd_events_dropped_total", sink=sink) for sink in ("EventLog", "Mine")] == [5, 6]
    assert [value(registry, "asd_anomalies_total", level=level) for level in ("first", "second")] == [2, 1]
    assert value(registry, "asd_rank_info", device="Ascend:3", vdie_id="") == 1
    versions = {"version": asd.__version__, "python": platform.python_version()}
    assert registry.get_sample_value("asd_build_info", versions) == 1


def test_a_process_that_ended_without_a_word_is_lost():
    dead, finished = status(active=True), status(rank=4, active=False)
    registry = registered(dead, finished, alive=lambda each: False)
    other = {**LABELS, "rank": "4"}
    for name, expected in (("asd_training_active", (0, 0)), ("asd_rank_lost", (1, 0))):
        assert (value(registry, name), registry.get_sample_value(name, other)) == expected


def test_a_training_that_nobody_judges_has_a_series_that_outlives_its_process():
    registry = registered(status(active=True, unjudged=True), status(rank=4), alive=lambda each: False)
    assert value(registry, "asd_training_unjudged") == 1
    assert registry.get_sample_value("asd_training_unjudged", {**LABELS, "rank": "4"}) is None


def test_events_come_out_with_their_ids_for_scrapers_that_take_them():
    events = [event(1), event(1, checkpoint="b"), event(2), event(3, level=Level.WARNING)]
    registry = registered(status(), events=events)
    assert [value(registry, "asd_anomalies_total", level=level) for level in ("first", "second")] == [3, 1]
    assert value(registry, "asd_strikes_in_window") == 2
    assert value(registry, "asd_device_suspect") == 0
    assert value(registry, "asd_last_anomaly_timestamp_seconds") == 1e9 + 3
    families = parse_openmetrics(generate_openmetrics(registry).decode())
    samples = [sample for family in families for sample in family.samples if sample.exemplar]
    shown = [(each.exemplar.labels, each.exemplar.value, float(each.exemplar.timestamp)) for each in samples]
    exemplars = dict(zip((each.labels["level"] for each in samples), shown, strict=True))
    assert exemplars == {
        "first": ({"event_id": event(2).id}, 1, 1e9 + 2),
        "second": ({"event_id": event(3, level=Level.WARNING).id}, 1, 1e9 + 3),
    }
    assert event(2).id not in generate_latest(registry).decode()


def test_a_device_becomes_suspect_isolated_and_healthy_again():
    events = [event(1), event(2), event(3), event(3, kind="replay", verdict="persistent"), event(3, kind="isolation")]
    names = ("asd_strikes_in_window", "asd_device_suspect", "asd_device_isolated")
    registry = registered(status(), events=events)
    assert [value(registry, name) for name in names] == [3, 1, 1]
    assert value(registry, "asd_replay_verdicts_total", verdict="persistent") == 1
    tested = event(3, kind="recovery", time=1e9 + 40, key="test", recovered_by="handler")
    registry = registered(status(), events=[*events, tested])
    assert [value(registry, name) for name in names] == [3, 1, 0]  # the handler itself gave it back
    registry = registered(status(), events=[*events, event(3, kind="recovery", time=1e9 + 50, recovered_by="person")])
    assert [value(registry, name) for name in names] == [0, 0, 0]


@pytest.mark.parametrize(("logged", "counted", "shown"), [(2, 0, 2), (2, 5, 5), (0, 1, 1)])
def test_neither_a_restarted_rank_nor_a_lost_log_hides_an_anomaly(logged, counted, shown):
    counts = status(anomalies={"first": counted, "second": 0})
    registry = registered(counts, events=[event(step) for step in range(1, logged + 1)])
    assert value(registry, "asd_anomalies_total", level="first") == shown


def test_a_rank_that_is_known_from_events_only_has_what_they_tell():
    registry = registered(events=[event(rank=-1, run="vendor")])
    labels = {**LABELS, "rank": "-1", "run": "vendor"}
    assert registry.get_sample_value("asd_anomalies_total", {**labels, "level": "first"}) == 1
    assert registry.get_sample_value("asd_strikes_in_window", labels) == 1
    assert registry.get_sample_value("asd_steps_total", labels) is None
    assert registry.get_sample_value("asd_training_active", labels) is None


def test_of_two_statuses_of_one_rank_the_newest_is_shown():
    old, new = status(step=5, written=1.0), status(step=9, written=2.0)
    for statuses in ((old, new), (new, old)):
        registry = registered(*statuses)
        series(registry)
        assert value(registry, "asd_step") == 9


def test_devices_whose_labels_agree_are_one_series():
    events = [event(1), event(2), event(3, device="NPU:3"), event(3, device="NPU:3", kind="isolation")]
    statuses = [status(step=5, written=2.0), status(device="NPU:3", step=6, written=1.0)]
    registry = registered(*statuses, events=events)
    series(registry)
    assert value(registry, "asd_anomalies_total", level="first") == 1  # of the device that was heard of last
    assert value(registry, "asd_device_isolated") == 1
    assert value(registry, "asd_step") == 6


def test_a_device_map_gives_the_names_that_join_with_other_exporters():
    registry = registered(status(), devices=lambda host, device: DeviceNames("11", f"{host}/{device}"))
    labels = {**LABELS, "id": "11", "device": "Ascend:3", "vdie_id": "node7/Ascend:3"}
    assert registry.get_sample_value("asd_rank_info", labels) == 1
    assert registry.get_sample_value("asd_anomalies_total", {**LABELS, "id": "11", "level": "first"}) == 0


VALUES = {"layers.0.norm": (1.0, 100.0), "layers.1.norm": (99.0, 100.0), "layers.10.norm": (5.0, 10.0)}
VALUES |= {"bias": (0.0, 0.0), "head": (math.nan, 10.0), "embedding": (1e30, math.inf)}


@pytest.mark.parametrize(
    ("most", "names"),
    [
        (0, []),
        (1, ["bias"]),  # by its name; the head is as far beyond its limit
        (4, ["bias", "head", "layers.1.norm", "layers.10.norm"]),
        (10000, sorted(VALUES)),
    ],
)
def test_the_checkpoints_nearest_to_their_limit_have_series_where_they_are_asked_for(most, names):
    registry = registered(status(checkpoints=nearest(VALUES, most)))
    found = series(registry).items()
    shown = {dict(labels)["checkpoint"]: value for (name, labels), value in found if name == "asd_feature_value"}
    assert sorted(shown) == names
    for name in names:
        assert shown[name] == VALUES[name][0] or math.isnan(VALUES[name][0])
        assert value(registry, "asd_feature_limit", checkpoint=name) == VALUES[name][1]


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@given(run=NAMES, host=NAMES, checkpoint=NAMES, sink=NAMES)
def test_labels_come_out_as_they_went_in(run, host, checkpoint, sink):
    counted = status(run=run, host=host, checkpoints={checkpoint: (1.0, 2.0)}, dropped={sink: 1})
    registry = registered(counted)
    expected = series(registry)
    for page, parse in ((generate_latest(registry), parse_text), (generate_openmetrics(registry), parse_openmetrics)):
        samples = [sample for family in parse(page.decode()) for sample in family.samples]
        parsed = {(each.name, tuple(sorted(each.labels.items()))): each.value for each in samples}
        assert parsed == expected


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ('"层\\\n', '"层\\\n'),
        ("a\0b", "a\\x00b"),
        ("bad\udcff", "bad\\udcff"),
        ("x" * 2000, "x" * 1000),
        ("\r\u2028", "\r\u2028"),
    ],
)
def test_what_prometheus_refuses_is_written_in_another_way(name, shown):
    counted = status(run=name, checkpoints={name: (1.0, 2.0)})
    registry = registered(counted, events=[event(run=name)])
    for page, parse in ((generate_latest(registry), parse_text), (generate_openmetrics(registry), parse_openmetrics)):
        samples = [sample for family in parse(page.decode()) for sample in family.samples]
        assert {sample.labels["checkpoint"] for sample in samples if "checkpoint" in sample.labels} == {shown}
        assert {sample.labels["run"] for sample in samples if "run" in sample.labels} == {shown}
