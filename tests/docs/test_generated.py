"""What the pages take from the code, and the site that is made of them."""

import re
from pathlib import Path

import chinese
import generated
import links
from prometheus_client import CollectorRegistry, generate_latest

from asd.settings.options import OPTIONS
from asd.settings.table import VARIABLES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def test_values_that_a_setting_takes_are_told_in_both_languages():
    for each in (*VARIABLES, *OPTIONS):
        words = re.findall(r"`([a-z_0-9]+)`", each.about)
        told = chinese.SETTINGS[each.name] + chinese.VALID[each.name]
        assert [word for word in words if f"`{word}`" not in told and not word.isdigit()] == [], each.name


def test_metrics_are_those_that_a_scrape_shows():
    registry = CollectorRegistry()
    registry.register(generated.agent_collector())
    served = re.findall(r"^# TYPE (asd_\w+) (\w+)$", generate_latest(registry).decode(), re.MULTILINE)
    listed = re.findall(r"^\| `(asd_\w+)` \| (\w+)", generated.metrics(), re.MULTILINE)
    assert sorted(listed) == sorted(served)


def test_runbook_has_a_part_for_each_alert_as_its_link_says():
    alerts = set(re.findall(r"alert: (\w+)", (ROOT / "exporters" / "alerts" / "asd_rules.yml").read_text()))
    for name in ("alerts.md", "alerts.zh.md"):
        assert set(re.findall(r"^## (Asd\w+)$", (DOCS / name).read_text(), re.MULTILINE)) == alerts, name


def site(folder, page):
    links._page.cache_clear()
    (folder / "a.html").write_text(page)
    (folder / "b.html").write_text('<h1 id="top">b</h1>')
    return list(links.wrong_in_site(folder))


def test_links_of_the_site_are_followed(tmp_path):
    assert site(tmp_path, '<a href="b.html#top"></a><a href="b.html"></a><a href="https://example.org/x"></a>') == []
    assert site(tmp_path, '<a href="c.html"></a>') == ["a.html: c.html leads to no file"]
    assert site(tmp_path, '<a href="b.html#end"></a>') == ["a.html: b.html#end leads to no place of that page"]


def test_links_of_readme_and_its_like_lead_somewhere():
    assert list(links.wrong_in_checkout()) == []
