"""The alert names the devices that have enough strikes, with the number that the fault handler counts."""

import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector
from real_programs import RULES, binary

from asd.exporters.prometheus.agent import Agent
from asd.exporters.prometheus.node import NodeCollector
from asd.handler import Policy

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))  # for strike_histories.py

from strike_histories import STRICT, USUAL, device_of, everything, expected, write

yaml = pytest.importorskip("yaml")
pytestmark = pytest.mark.stack


def samples(collector: Collector, *names):
    registry = CollectorRegistry()
    registry.register(collector)
    return [sample for family in registry.collect() for sample in family.samples if sample.name in names]


@pytest.mark.parametrize("options", [USUAL, STRICT], ids=["usual", "strict"])
def test_the_alert_fires_for_the_expected_devices_and_tells_their_strikes(tmp_path, options):
    strikes, minutes, many = map(int, options[1:6:2])
    rule = "strikes" if "--policy" in options else "suspicion"
    policy = Policy(rule=rule, strikes=strikes, window_seconds=60.0 * minutes, many_devices=many, stale_seconds=28800.0)
    write(tmp_path / "run", everything())
    agent = Agent([tmp_path / "run"], policy=policy)
    agent.poll()
    found = samples(NodeCollector(agent), "asd_strikes_in_window", "asd_device_suspect")
    agent.close()
    series = [
        {
            "series": f"{each.name}{{{','.join(f'{k}={v!r}' for k, v in each.labels.items())}}}".replace("'", '"'),
            "values": f"{each.value:g}x2",
        }
        for each in found
    ]
    wanted, counts = [], expected(options)
    for each in found:
        labels = each.labels
        device = device_of(labels)
        if each.name == "asd_strikes_in_window" and counts.get(device, 0) >= strikes:
            wanted.append(
                {
                    "exp_labels": {"severity": "critical", "faultcode": "80818C00", **labels},
                    "exp_annotations": {
                        "summary": f"Strike-out: device {labels['id']} of {labels['node']} is suspect",
                        "description": f"Device {labels['id']} of node {labels['node']} (rank {labels['rank']} of run "
                        f"{labels['run']}) has {counts[device]} strikes: steps with first-level anomalies that nothing "
                        "shows to be the fault of software or data.",
                        "runbook_url": "docs/alerts.md#asdstrikeout",
                    },
                }
            )
    assert len(wanted) > 1
    (tmp_path / RULES.name).write_text(RULES.read_text())
    test = {
        "interval": "1m",
        "input_series": series,
        "alert_rule_test": [
            {"eval_time": "1m", "alertname": "AsdStrikeOut", "exp_alerts": wanted},
        ],
    }
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [RULES.name], "tests": [test]}))
    done = subprocess.run([binary("promtool"), "test", "rules", str(file)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
