"""Every query of the dashboard, asked of a real Prometheus that has scraped a real `asd exporter`."""

import json
import re
import signal
import socket
import sys
import time
from pathlib import Path

import pytest
from real_programs import SHIPPED, Prometheus, eventually, node_exporter

from tests.support.ports import free_port

pytestmark = pytest.mark.stack

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"
RANK = Path(__file__).parent / "programs" / "made_up_rank.py"
DASHBOARD = json.loads((SHIPPED / "dashboards" / "asd.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [(panel["title"], target) for panel in PANELS for target in panel["targets"]]
VARIABLES = {"run": ".*", "node": f"({socket.gethostname()}|another)", "rank": ".*", "__rate_interval": "4s"}


def filled(expression):
    """The expression as Grafana sends it."""
    return re.sub(r"\$(\w+)", lambda match: VARIABLES[match[1]], expression)


def documented():
    """The queries of the document, which is not there when the tests run away from the checkout."""
    return re.findall(r"```promql\n(.*?)\n```", DOCUMENT.read_text(), re.DOTALL) if DOCUMENT.exists() else []


def npu_exporter(start):
    """The address of something that serves npu-exporter's health gauge of devices 0 to 2, all of them healthy."""
    folder = start.folder / "npu-exporter"
    folder.mkdir()
    labels = 'model_name="910B3",vdie_id="",pcie_bus_info="0000:C1:00.0"'
    series = f'npu_chip_info_health_status{{node="{socket.gethostname()}",{labels},id='
    (folder / "npu.prom").write_text("".join(f'{series}"{number}"}} 1\n' for number in range(3)))
    target = f"127.0.0.1:{free_port()}"
    node_exporter(start, target, folder)
    return target


class Seen:
    """A Prometheus that has seen three made-up ranks: a healthy one, one that strikes out, and one that is killed."""

    def __init__(self, start):
        self.begin = time.time()
        run_dir = start.folder / "asd_run"
        ranks = [start(sys.executable, RANK, rank, ASD_RUN_DIR=str(run_dir)) for rank in range(3)]
        port = free_port()
        options = f"--run-dir {run_dir} --port {port} --checkpoints 3".split()
        start.asd("exporter", *options, ready=f"http://127.0.0.1:{port}/readyz")
        self.url = f"http://127.0.0.1:{port}"
        handler = free_port()
        (start.folder / "agents.json").write_text(
            json.dumps([{"targets": [f"127.0.0.1:{port}"], "labels": {"node": socket.gethostname()}}])
        )
        (start.folder / "hosts").write_text(f"{socket.gethostname()}\nnode8\n")
        options = f"--agents {start.folder / 'agents.json'} --metrics 127.0.0.1:{handler} --settle 0".split()
        options += f"--isolator hostfile --option hosts={start.folder / 'hosts'}".split()
        home = str(start.folder / "handler")
        start.asd("handler", *options, ASD_RUN_DIR=home, ready=f"http://127.0.0.1:{handler}/readyz")
        targets = {"asd-handler": f"127.0.0.1:{handler}", "asd": f"127.0.0.1:{port}"}
        targets["npu-exporter"] = npu_exporter(start)
        jobs = [
            {"job_name": name, "static_configs": [{"targets": [target]}], "honor_labels": name == "npu-exporter"}
            for name, target in targets.items()
        ]
        self.prometheus = Prometheus(start, jobs)
        eventually(lambda: self.prometheus.value("count(count_over_time(asd_steps_total[10s]) >= 2)") == 3)
        (run_dir / "go").touch()
        eventually(lambda: self.prometheus.value("count(asd_step > 3)") == 3)
        ranks[2].process.send_signal(signal.SIGKILL)
        eventually(lambda: self.prometheus.value('asd_rank_lost{rank="2"}') == 1)
        eventually(lambda: self.prometheus.value('asd_step{rank="1"} > 14'))
        eventually(lambda: self.prometheus.value('asd_device_isolated{rank="0"}') == 1)  # the handler alone knows of 1
        eventually(lambda: self.prometheus.query('ALERTS{alertname="AsdDeviceIsolated"}'))
        eventually(lambda: self.prometheus.value("asd_handler_device_isolated") == 1)
        eventually(lambda: self.prometheus.query("asd_handler_fleet_device_days > 0"), seconds=90)  # told each minute

    def ask(self, target):
        """What a panel gets: the values at the end, or all since the beginning."""
        if target.get("instant"):
            return self.prometheus.api("query", query=filled(target["expr"]))["result"]
        return self.prometheus.api(
            "query_range", query=filled(target["expr"]), start=self.begin, end=time.time(), step="1s"
        )["result"]


@pytest.fixture(scope="module")
def seen(start):
    """See `Seen`."""
    return Seen(start)


@pytest.mark.parametrize(("title", "target"), QUERIES, ids=[f"{title}-{target['refId']}" for title, target in QUERIES])
def test_a_query_succeeds_and_has_data(seen, title, target):
    assert seen.ask(target), target["expr"]


def values(seen, title):
    """The last value of each series of a panel, by rank, or the one value."""
    (target,) = next(panel["targets"] for panel in PANELS if panel["title"] == title)
    result = seen.ask(target)
    last = {}
    for series in result:
        labels = series["metric"]
        last[labels.get("rank", labels.get("id"))] = float(series.get("values", [series.get("value")])[-1][1])
    return last[None] if set(last) == {None} else last


def test_the_figures_on_top_are_right(seen):
    assert values(seen, "Ranks in training") == 2
    assert values(seen, "Silent ranks") == 0
    assert values(seen, "Lost ranks") == 1
    assert values(seen, "First-level anomalies") == 3
    assert values(seen, "Updates refused") == 3
    assert values(seen, "Suspect devices") == 1
    assert values(seen, "Isolated devices") == 2
    assert values(seen, "Exporters down") == 0


def test_ranks_and_devices_are_shown_as_what_they_are(seen):
    assert values(seen, "Training, at most 20 ranks") == {"0": 1, "1": 1, "2": 2}
    assert values(seen, "Devices, at most 20") == {"0": 2, "1": 2, "2": 0}
    assert values(seen, "Strikes that count") == {"0": 0, "1": 3, "2": 0}


def test_the_handler_is_shown_as_it_is(seen):
    (acts,) = seen.prometheus.query(next(each for each in PANELS if each["title"] == "Handlers")["targets"][0]["expr"])
    assert acts[1] == 1
    assert [value for _, value in seen.prometheus.query("asd_handler_agent_up")] == [1]
    out = [(labels["node"], labels["id"]) for labels, _ in seen.prometheus.query("asd_handler_device_isolated")]
    assert out == [(socket.gethostname(), "1")]


def test_the_cost_is_the_share_that_the_ranks_told(seen):
    shares = values(seen, "Share of the step spent on detection")
    assert shares == {rank: pytest.approx(0.001 / 0.2) for rank in ("0", "1", "2")}


def test_the_checkpoint_nearest_to_its_limit_is_shown_with_its_limit(seen):
    title = "Last value and limit of the checkpoints nearest to their limits"
    value, limit = next(panel["targets"] for panel in PANELS if panel["title"] == title)
    found = [{series["metric"]["checkpoint"] for series in seen.ask(target)} for target in (value, limit)]
    assert found[0] == found[1]
    assert "layers.4.norm" in found[0]


def test_the_variables_offer_what_there_is(seen):
    offered = {}
    for variable in DASHBOARD["templating"]["list"][1:]:
        metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()
        offered[variable["name"]] = seen.prometheus.api(f"label/{label}/values", **{"match[]": filled(metric)})
    assert offered == {"run": ["made-up"], "node": [socket.gethostname()], "rank": ["0", "1", "2"]}


def test_the_annotation_is_drawn_when_the_anomaly_was(seen):
    (annotation,) = [each for each in DASHBOARD["annotations"]["list"] if "expr" in each]
    drawn = {sample["rank"]: value / 1000 for sample, value in seen.prometheus.query(filled(annotation["expr"]))}
    assert drawn["1"] == pytest.approx(time.time(), abs=60)


def test_the_point_of_an_anomaly_leads_to_its_event(seen):
    (target,) = next(panel["targets"] for panel in PANELS if panel["title"] == "Anomalies")
    assert target["exemplar"]
    found = seen.prometheus.api("query_exemplars", query=filled(target["expr"]), start=seen.begin, end=time.time())
    first = [series["exemplars"] for series in found if series["seriesLabels"]["level"] == "first"]
    ids = {exemplar["labels"]["event_id"] for exemplars in first for exemplar in exemplars}
    log = seen.prometheus.program.log.parent / "asd_run" / "events-rank1.jsonl"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert ids
    assert ids <= {event["id"] for event in events if event["data"]["level"] == "first"}


@pytest.mark.parametrize("query", documented())
def test_a_query_of_the_document_has_an_answer(seen, query):
    assert seen.prometheus.query(query.replace("[5m]", "[4s]"))


def test_a_suspect_device_that_the_driver_calls_healthy_is_found_by_its_id(seen):
    query = "asd_device_suspect == 1 and on (node, id) npu_chip_info_health_status == 1"
    assert query in DOCUMENT.read_text()
    assert [labels["id"] for labels, _ in seen.prometheus.query(query)] == ["1"]
