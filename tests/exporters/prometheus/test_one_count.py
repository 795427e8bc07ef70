"""Strikes are counted once: exporter, report and handler show the same number for the same events and options."""

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

import asd
from asd import Level
from asd.cli import main
from asd.exporters.prometheus.agent import Agent
from asd.exporters.prometheus.node import NodeCollector
from asd.exporters.report.data import read_run
from asd.exporters.report.sections import facts_of_rank
from asd.handler import FaultHandler, NoIsolator, Policy, Store
from asd.handler.device_record import device_records
from asd.handler.inputs.feed import LogFeed
from tests.support.events import moved

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))  # for strike_histories.py

from strike_histories import (
    HISTORIES,
    STRICT,
    USUAL,
    device_of,
    everything,
    expected,
    first,
    named,
    replay,
    told,
    write,
)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("NPU_ASD_", "ASD_")):
            monkeypatch.delenv(name)


def known(rows):
    """Strikes by device; every row of a device must tell the same."""
    counts = {}
    for device, strikes in rows:
        assert counts.setdefault(device, strikes) == strikes, device
    return counts


def of_handler(folder, options, capsys):
    """What `asd handler` counted, as `asd devices` shows it."""
    more = ["--from-beginning", "--settle", "0", "--max-devices", "1000", "--max-percent", "100"]
    assert main(["handler", "--once", "--run-dir", str(folder), *more, *options]) == 0
    capsys.readouterr()
    assert main(["devices", "--json", "--run-dir", str(folder)]) == 0
    devices = json.loads(capsys.readouterr().out)
    limit = int(options[1])
    for device in devices:
        proven = device["verdicts"]["persistent"] or device["host"] == "a-value-that-moves-with-the-device"
        assert device["limit"] == limit
        assert (device["state"] == "isolated") == bool(device["strikes"] >= limit or proven), device
    counts = known((named(each["host"], each["device"], each["rank"]), each["strikes"]) for each in devices)
    # It hears of a device by a fault, or by the status that its rank leaves.
    return {**dict.fromkeys((("no-strikes", "Ascend:3"), ("nobody", "unknown rank 0")), 0), **counts}


def of_report(folder, options, capsys):
    """What `asd report` shows."""
    assert main(["report", str(folder), "--json", *options]) == 0
    ranks = json.loads(capsys.readouterr().out)["ranks"]
    return known((named(each["host"], each["device"], each["rank"]), each["strikes"]) for each in ranks)


def page_of_exporter(folder, options):
    """What `asd exporter` serves once it has read everything."""
    command = [sys.executable, "-m", "asd", "exporter", "--run-dir", str(folder), "--port", "0", *options]
    environ = {**os.environ, "PYTHONPATH": str(Path(asd.__file__).parents[1])}
    with subprocess.Popen(command, cwd=folder, env=environ, stderr=subprocess.PIPE, text=True) as process:
        try:
            url = re.search(r"at (http://\S+)/metrics\n", process.stderr.readline()).group(1)
            for _ in range(600):
                try:
                    urllib.request.urlopen(f"{url}/readyz", timeout=20).close()
                    break
                except urllib.error.HTTPError as error:
                    error.close()
                    time.sleep(0.05)
            with urllib.request.urlopen(f"{url}/metrics", timeout=20) as answer:
                return answer.read().decode()
        finally:
            process.terminate()
            process.communicate()


def of_page(page, limit):
    """The gauges by device; the exporter calls suspect what the fault handler takes out for its strikes."""
    found = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name in ("asd_strikes_in_window", "asd_device_suspect"):
                found.setdefault(tuple(sample.labels.values()), {})[sample.name] = (sample.labels, sample.value)
    rows = []
    for both in found.values():
        (labels, strikes), (_, suspect) = both["asd_strikes_in_window"], both["asd_device_suspect"]
        assert suspect == (strikes >= limit)
        rows.append((device_of(labels), int(strikes)))
    return known(rows)


@pytest.mark.parametrize("options", [USUAL, STRICT], ids=["usual", "strict"])
def test_exporter_handler_and_report_show_the_expected_strikes(tmp_path, capsys, options):
    folder = tmp_path / "run"
    write(folder, everything())
    wanted = expected(options)
    assert of_page(page_of_exporter(folder, options), int(options[1])) == wanted
    assert of_handler(folder, options, capsys) == wanted
    assert of_report(folder, options, capsys) == wanted
    assert of_page(page_of_exporter(folder, options), int(options[1])) == wanted  # with what the handler told


def test_the_options_are_told_with_the_numbers(tmp_path, capsys):
    write(tmp_path, everything())
    page = page_of_exporter(tmp_path, STRICT)
    assert "# HELP asd_strikes_in_window Strikes of the device in the last 60 minutes, in all runs; what" in page
    assert "# HELP asd_device_suspect 1 when these are 2 or more" in page
    assert main(["report", str(tmp_path), *STRICT]) == 0
    capsys.readouterr()
    page = (tmp_path / "report.html").read_text()
    assert "Strikes are those of the device within the last 60 minutes" in page
    assert "as the fault handler counts them: 2 take a device out." in page


@pytest.mark.parametrize("command", [["exporter"], ["report", "."], ["handler"]], ids=lambda words: words[0])
@pytest.mark.parametrize("option", ["--strikes", "--window", "--many"])
def test_a_wrong_number_ends_in_one_sentence_everywhere(command, option, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*command, option, "0"]) == 2
    assert re.fullmatch(
        rf"asd: {option} has the value '0', which is not valid: it must be a .*number from .*\n",
        capsys.readouterr().err,
    )


# Whatever happens, they agree.

ANY = st.builds(
    lambda kind, step, ago, number, rank, attempt, fault: moved(
        replace(kind(step, ago=ago, device=f"Ascend:{number}"), value=2e6 + fault),
        host="node7",
        rank=number if rank is None else rank,
        run=attempt,
    ),
    st.sampled_from(
        [first] * 6
        + [
            lambda step, _verdict=verdict, **changes: replay(_verdict, step, **changes)
            for verdict in ("software", "transient", "persistent", "undetermined")
        ]
        + [
            lambda step, _kind=kind, **changes: told(_kind, step, **changes)
            for kind in ("recovery", "isolation", "follower", "stress")
        ]
        + [lambda step, **changes: told("stress", step, level=Level.ERROR, **changes)]
    ),
    st.integers(0, 4),
    st.floats(1, 700),
    st.integers(3, 6),
    st.sampled_from([None, None, 0, 7]),
    st.sampled_from(["job", "job+2", "other"]),
    st.integers(0, 1),
)


@given(
    st.lists(ANY, max_size=25),
    st.integers(1, 4),
    st.sampled_from([1800.0, 28800.0]),
    st.integers(2, 4),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_they_agree_whatever_happens(tmp_path_factory, events, strikes, window, many):
    events = sorted({each.id: each for each in events}.values(), key=lambda each: each.time)
    policy = Policy(strikes=strikes, window_seconds=window, many_devices=many, stale_seconds=28800.0)
    folder = tmp_path_factory.mktemp("run")
    now = time.time()
    with (folder / "events-rank0.jsonl").open("w") as log:
        log.writelines(each.to_json() + "\n" for each in events)

    store = Store(None)
    with closing(store):
        handler = FaultHandler(store, policy, NoIsolator(store), lambda _event: None, lambda: now, from_beginning=True)
        feed = LogFeed(handler, [folder])
        while feed.step() is not None:
            pass
        handled = {named(e.host, e.device, e.rank): e.strikes for e in device_records(store, policy, now)}

    data = read_run(folder, now=now, policy=policy)
    reported = known((named(rank.host, rank.device, rank.rank), facts_of_rank(rank)["strikes"]) for rank in data.ranks)

    agent = Agent([folder], policy=policy, clock=lambda: now)
    with closing(agent):
        agent.poll()
        collector = NodeCollector(agent)
        collector.clock = lambda: now
        registry = CollectorRegistry()
        registry.register(collector)
        exported = known(
            (device_of(sample.labels), int(sample.value))
            for family in registry.collect()
            for sample in family.samples
            if sample.name == "asd_strikes_in_window"
        )
    assert {device: count for device, count in exported.items() if count} == {d: n for d, n in handled.items() if n}
    assert {device: count for device, count in reported.items() if count} == {d: n for d, n in handled.items() if n}


def test_each_history_has_a_name_of_its_own():
    assert len({told_of.name for told_of in HISTORIES}) == len(HISTORIES)
