"""The configuration of OpenTelemetry's Collector in the documents reads the event logs as they are written."""

import json
from datetime import datetime
from pathlib import Path

import pytest
from markdown import blocks

from asd.event import LEVEL_NAMES
from asd.rundir import names
from tests.support.events import event_maker

PAGES = ["operations.md", "operations.zh.md"]
DOCS = Path(__file__).resolve().parents[2] / "docs"
IN_GO = {"2006-01-02T15:04:05": "%Y-%m-%dT%H:%M:%S", "000000": "%f", "Z07:00": "%z"}


@pytest.fixture(params=PAGES)
def collector(request):
    yaml = pytest.importorskip("yaml")
    (text,) = [block.text for block in blocks(DOCS / request.param) if "filelog" in block.text]
    return yaml.safe_load(text)


def test_the_collector_finds_the_event_logs_and_reads_time_and_level(collector, tmp_path):
    filelog = collector["receivers"]["filelog"]
    pattern = Path(filelog["include"][0]).relative_to("/shared/runs")
    log = names.event_file(tmp_path / "job1" / "run", 3)
    log.parent.mkdir(parents=True)
    event = event_maker(time=1.8e9 + 0.25)()
    log.write_text(event.to_json() + "\n")
    assert list(tmp_path.glob(str(pattern))) == [log]

    attributes = json.loads(log.read_text())
    (parser,) = filelog["operators"]
    layout = parser["timestamp"]["layout"]
    for part, directive in IN_GO.items():
        layout = layout.replace(part, directive)
    assert parser["timestamp"]["parse_from"] == "attributes.time"
    assert datetime.strptime(attributes["time"], layout).timestamp() == pytest.approx(event.time, abs=1e-6)
    assert parser["severity"]["parse_from"] == "attributes.data.level"
    assert attributes["data"]["level"] == LEVEL_NAMES[event.level]
    assert set(parser["severity"]["mapping"].values()) == set(LEVEL_NAMES.values())


def test_everything_that_a_pipeline_names_is_there(collector):
    for pipeline in collector["service"]["pipelines"].values():
        for kind in ("receivers", "exporters"):
            assert set(pipeline[kind]) <= set(collector[kind])
    assert set(collector["service"]["extensions"]) == set(collector["extensions"])
