"""Strikes are counted once: exporter, report and handler show the same number for the same events and options."""

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import asd
from asd.cli import main
from tests.support.strike_histories import STRICT, USUAL, device_of, everything, expected, write
from tests.support.tables import quick


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
    assert main(["handler", "--once", "--half-life", "0.01", "--run-dir", str(folder), *more, *options]) == 0
    capsys.readouterr()
    assert main(["devices", "--json", "--run-dir", str(folder)]) == 0
    devices = json.loads(capsys.readouterr().out)
    limit = int(options[1])
    for device in devices:
        proven = device["verdicts"]["persistent"] or device["host"] == "a-value-that-moves-with-the-device"
        assert device["limit"] == limit
        assert (device["state"] == "isolated") == bool(device["strikes"] >= limit or proven), device
    counts = known(((each["host"], each["device"]), each["strikes"]) for each in devices)
    # It hears of a device by a fault, or by the status that its rank leaves.
    return {**dict.fromkeys((("no-strikes", "Ascend:3"), ("nobody", "unknown")), 0), **counts}


def of_report(folder, options, capsys):
    """What `asd report` shows."""
    assert main(["report", str(folder), "--json", *options]) == 0
    ranks = json.loads(capsys.readouterr().out)["ranks"]
    return known(((each["host"], each["device"]), each["strikes"]) for each in ranks)


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


@pytest.mark.parametrize("options", quick(1, [(STRICT,), (USUAL,)]), ids=["strict", "usual"])
def test_exporter_handler_and_report_show_the_expected_strikes(tmp_path, capsys, options):
    folder = tmp_path / "run"
    write(folder, everything())
    wanted = expected(options)
    assert of_page(page_of_exporter(folder, options), int(options[1])) == wanted
    assert of_handler(folder, options, capsys) == wanted
    assert of_report(folder, options, capsys) == wanted
    assert of_page(page_of_exporter(folder, options), int(options[1])) == wanted  # with what the handler told
