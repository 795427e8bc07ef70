"""The Grafana dashboard as a file: what Grafana needs to import it, and what its queries may name."""

import json
import re
from pathlib import Path

import pytest

import asd.exporters

DASHBOARD = json.loads((Path(asd.exporters.__file__).parent / "dashboards" / "asd.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
METRICS = {
    "asd_build_info",
    "asd_rank_info",
    "asd_training_active",
    "asd_rank_lost",
    "asd_step",
    "asd_steps_total",
    "asd_checks_total",
    "asd_nonfinite_values_total",
    "asd_refused_updates_total",
    "asd_detector_problems_total",
    "asd_evidence_dropped_total",
    "asd_events_dropped_total",
    "asd_anomalies_total",
    "asd_strikes_total",
    "asd_strikes_in_window",
    "asd_device_suspect",
    "asd_device_isolated",
    "asd_replay_verdicts_total",
    "asd_feature_ratio_bucket",
    "asd_step_seconds_total",
    "asd_check_seconds_total",
    "asd_check_share_ratio",
    "asd_last_check_timestamp_seconds",
    "asd_status_timestamp_seconds",
    "asd_last_anomaly_timestamp_seconds",
    "asd_feature_value",
    "asd_feature_limit",
    "asd_agent_problems_total",
    "asd_agent_last_poll_timestamp_seconds",
    "asd_handler_acting",
    "asd_handler_circuit_open",
    "asd_handler_last_look_timestamp_seconds",
    "asd_handler_devices_refused",
    "asd_handler_failed_tries_total",
    "asd_handler_agent_up",
    "asd_handler_device_isolated",
}


def queries():
    """Every expression, with the title of its panel."""
    return [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]


def test_it_has_what_an_import_needs():
    assert DASHBOARD["uid"] == "asd-overview"
    assert DASHBOARD["schemaVersion"] >= 36
    assert DASHBOARD["id"] is None  # Grafana gives one
    assert "__inputs" not in DASHBOARD  # the variable does it
    assert VARIABLES["datasource"]["type"] == "datasource"
    assert VARIABLES["datasource"]["query"] == "prometheus"


def test_run_node_and_rank_can_be_chosen_several_at_a_time():
    assert list(VARIABLES) == ["datasource", "run", "node", "rank"]
    for name in ("run", "node", "rank"):
        assert VARIABLES[name]["multi"]
        assert VARIABLES[name]["includeAll"]
        assert VARIABLES[name]["definition"] == VARIABLES[name]["query"]["query"]


def test_every_panel_asks_the_chosen_data_source():
    for panel in PANELS:
        for holder in (panel, *panel["targets"]):
            assert holder["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_ids_differ_and_no_panel_covers_another():
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    cells = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        covered = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not covered & cells, panel["title"]
        cells |= covered


def test_targets_of_one_panel_have_letters_of_their_own():
    for panel in PANELS:
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters)


@pytest.mark.parametrize(("title", "query"), queries())
def test_a_query_names_only_our_metrics_and_only_variables_that_exist(title, query):
    assert set(re.findall(r"\basd_\w+", query)) <= METRICS
    assert set(re.findall(r"\$(\w+)", query)) <= {*VARIABLES, "__rate_interval"}
    # A metric of a rank that is not filtered would show other runs among the chosen ones.
    for name in re.findall(r"\b(asd_\w+)(?!\w|\{)", query):
        assert name.startswith(("asd_agent_", "asd_handler_", "asd_build_info")), title
    for window in re.findall(r"\[(.*?)\]", query):
        assert window == "$__rate_interval" or title == "Silent ranks"


def test_what_an_operator_asks_first_has_a_panel():
    assert {panel["title"] for panel in PANELS} >= {
        "Ranks in training",
        "Silent ranks",
        "First-level anomalies",
        "Suspect devices",
        "Isolated devices",
        "Refused updates",
        "Strikes that count",
        "Value / first-level limit",
        "Share of the step spent on detection",
        "Problems of the agent",
        "Events lost, by sink",
        "Handlers",
        "Time since a handler last looked",
        "Isolations that the engine refuses",
        "Agents",
    }
    (heatmap,) = [panel for panel in PANELS if panel["type"] == "heatmap"]
    assert heatmap["targets"][0]["format"] == "heatmap"
    assert not heatmap["options"]["calculate"]
