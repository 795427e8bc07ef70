"""The alert rules and the route, by Prometheus' and Alertmanager's own tools."""

import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from real_programs import RULES, SHIPPED, binary

yaml = pytest.importorskip("yaml")
pytestmark = pytest.mark.stack

TESTS = SHIPPED / "alerts" / "asd_rules_test.yml"
ROUTE = SHIPPED / "alerts" / "alertmanager.example.yml"
OF_A_DEVICE = {"AsdAnomaly", "AsdReplayVerdict", "AsdStrikeOut", "AsdDeviceIsolated"}


def rules():
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts():
    return [rule for rule in rules() if "alert" in rule]


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)


def test_promtool_finds_nothing_to_complain_of_in_the_rules():
    done = run(binary("promtool"), "check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert done.returncode == 0, done
    assert f"SUCCESS: {len(rules())} rules found" in done.stdout
    assert done.stderr == ""


def test_every_alert_fires_when_it_should_and_not_when_it_should_not():
    done = run(binary("promtool"), "test", "rules", TESTS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_unit_tests_name_a_firing_and_a_silent_moment_of_every_alert():
    moments = [each for test in yaml.safe_load(TESTS.read_text())["tests"] for each in test.get("alert_rule_test", ())]
    for fires in (True, False):
        named = {moment["alertname"] for moment in moments if bool(moment.get("exp_alerts")) is fires}
        assert named == {alert["alert"] for alert in alerts()}


def damaged():
    """The rules with one thing wrong in each, and what it is."""
    for number, alert in enumerate(alerts()):
        name, parts = alert["alert"], alert["expr"].split("\nor\n")
        for part in range(len(parts)):
            rest = [text for other, text in enumerate(parts) if other != part]
            yield f"{name} without part {part + 1}", number, {"expr": "\nor\n".join(rest) or "vector(0) > 1"}
        if "for" in alert:
            yield f"{name} does not wait", number, {"for": "0s"}


def passes(folder, name, number, change):
    """Whether the unit tests of an alert pass when the rule is changed."""
    file = yaml.safe_load(RULES.read_text())
    [rule for group in file["groups"] for rule in group["rules"] if "alert" in rule][number].update(change)
    tests = yaml.safe_load(TESTS.read_text())
    tests["tests"] = [
        test for test in tests["tests"] if name in {moment["alertname"] for moment in test.get("alert_rule_test", ())}
    ]
    folder.mkdir()
    (folder / RULES.name).write_text(yaml.safe_dump(file))
    (folder / TESTS.name).write_text(yaml.safe_dump(tests))
    return run(binary("promtool"), "test", "rules", folder / TESTS.name).returncode == 0


def test_the_unit_tests_notice_every_damage_to_a_rule(tmp_path):
    damages = [(f"{alert['alert']} as it is", number, {}) for number, alert in enumerate(alerts())] + list(damaged())
    with ThreadPoolExecutor(2) as pool:
        passed = list(pool.map(lambda case: passes(tmp_path / case[0], case[0].split()[0], *case[1:]), damages))
    unnoticed = [what for (what, *_), passing in zip(damages, passed, strict=True) if passing]
    assert unnoticed == [f"{alert['alert']} as it is" for alert in alerts()]


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_every_alert_has_labels_to_route_by_and_texts_to_act_on(alert):
    assert alert["labels"]["severity"] in {"critical", "warning"}
    assert alert["labels"].get("faultcode") == ("80818C00" if alert["alert"] in OF_A_DEVICE else None)
    assert ("for" in alert) <= (alert["alert"] not in OF_A_DEVICE)  # which do not wait
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    assert alert["annotations"]["runbook_url"] == f"docs/alerts.md#{alert['alert'].lower()}"


def test_alertmanager_accepts_the_route():
    done = run(binary("amtool"), "check-config", ROUTE)
    assert done.returncode == 0, done
    assert "SUCCESS" in done.stdout


@pytest.mark.parametrize(
    ("labels", "receivers"),
    [
        ({"severity": "critical", "faultcode": "80818C00"}, "wrong-device,on-call"),
        ({"severity": "warning", "faultcode": "80818C00"}, "wrong-device,operators"),
        ({"severity": "critical"}, "on-call"),
        ({"severity": "warning"}, "operators"),
    ],
)
def test_a_fault_code_is_told_at_once_and_everything_goes_to_people(labels, receivers):
    words = ("config", "routes", "test", f"--config.file={ROUTE}", f"--verify.receivers={receivers}")
    done = run(binary("amtool"), *words, *(f"{name}={value}" for name, value in labels.items()))
    assert done.returncode == 0, done
