"""node_exporter takes what we write."""

import re

import pytest
from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families
from real_programs import get, node_exporter

from asd.exporters.ledger import Ledger
from asd.exporters.prometheus.collector import AsdCollector
from asd.judge.status import Status
from tests.support.events import event_maker, made_of
from tests.support.ports import free_port

pytestmark = pytest.mark.stack

RUN = 'a "run"/训练\n2'


@pytest.fixture
def registry():
    """What an agent would serve of two ranks, one of which had an anomaly."""
    statuses = [
        made_of(Status, run=RUN, rank=rank, host="n 1", device=f"Ascend:{rank}", checks=100 + rank) for rank in (0, 1)
    ]
    ledger = Ledger()
    ledger.add(event_maker(run=RUN)(7, "n 1", "Ascend:1", 1))
    made = CollectorRegistry()
    made.register(AsdCollector(lambda: statuses, ledger))
    return made


def told(families, *, without=()):
    """Every sample of ours as `(name, labels) -> value`."""
    found = [sample for family in families for sample in family.samples if sample.name.startswith("asd_")]
    labels = [{name: value for name, value in each.labels.items() if name not in without} for each in found]
    return {(each.name, frozenset(kept.items())): each.value for each, kept in zip(found, labels, strict=True)}


def test_node_exporter_serves_every_sample_of_the_textfile_and_finds_no_fault(start, registry, tmp_path):
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    write_to_textfile(str(tmp_path / "asd.prom"), registry)
    node_exporter(start, f"127.0.0.1:{port}", tmp_path)
    page = get(url)
    assert re.search(r"^node_textfile_scrape_error 0$", page, re.MULTILINE)
    assert f'node_textfile_mtime_seconds{{file="{tmp_path}/asd.prom"}}' in page
    expected = told(registry.collect())
    assert len(expected) > 40
    assert told(text_string_to_metric_families(page)) == expected
