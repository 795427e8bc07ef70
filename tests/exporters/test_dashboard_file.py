"""The Grafana dashboard as a file: what Grafana needs to import it, and what its queries may name."""

import json
import re
from pathlib import Path

import pytest

import asd.exporters

DASHBOARD = json.loads((Path(asd.exporters.__file__).parent / "dashboards" / "asd.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}


def queries():
    """Every expression, with the title of its panel."""
    return [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]


def test_every_panel_asks_the_chosen_data_source():
    for panel in PANELS:
        for holder in (panel, *panel["targets"]):
            assert holder["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@pytest.mark.parametrize(("title", "query"), queries())
def test_a_query_names_only_variables_that_exist_and_no_run_that_is_not_chosen(title, query):
    assert set(re.findall(r"\$(\w+)", query)) <= {*VARIABLES, "__rate_interval"}
    # A metric of a rank that is not filtered would show other runs among the chosen ones.
    for name in re.findall(r"\b(asd_\w+)(?!\w|\{)", query):
        assert name.startswith(("asd_agent_", "asd_handler_", "asd_build_info")), title
    for window in re.findall(r"\[(.*?)\]", query):
        assert window == "$__rate_interval" or title == "Silent ranks"


def test_a_panel_with_a_row_for_each_draws_twenty_of_a_thousand():
    rows = {panel["title"]: panel["targets"][0]["expr"] for panel in PANELS if panel["type"] == "state-timeline"}
    assert len(rows.pop("Handlers")) > 0  # of which there are two
    assert all(re.match(r"(top|bottom)k\(20, ", expr) for expr in rows.values())
    assert len(rows) == 3
