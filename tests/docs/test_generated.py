"""What the pages take from the code, and the site that is made of them."""

import re
import subprocess
import sys
from pathlib import Path

import chinese
import generated
import links
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from asd.cli import ALIASES, COMMANDS, parser_of
from asd.settings.options import OPTIONS
from asd.settings.table import VARIABLES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


@pytest.mark.parametrize("name", generated.PARTS)
def test_every_part_is_made_and_is_used(name):
    assert generated.PARTS[name]().strip()
    assert any(f"<!-- generated: {name} -->" in path.read_text(encoding="utf-8") for path in DOCS.glob("*.md"))


def test_no_page_asks_for_a_part_that_nobody_makes():
    for path in DOCS.glob("*.md"):
        asked = re.findall(r"<!-- generated: (.+?) -->", path.read_text(encoding="utf-8"))
        assert set(asked) <= set(generated.PARTS)


def test_rooms_are_the_folders_with_what_their_docstrings_say():
    text = generated.rooms()
    rows = dict(re.findall(r"^\| `([\w/]+)/` \| (.+?) \|", text, re.MULTILINE))
    for folder in ("asd", "operators", "exporters"):
        inside = {
            str(path.parent.relative_to(ROOT))
            for path in (ROOT / folder).rglob("__init__.py")
            if path.parent.relative_to(ROOT).parts[:2] not in (("asd", "operators"), ("asd", "exporters"))
        }
        assert inside <= set(rows)
    assert all(words.strip() for words in rows.values())
    assert set(generated._OTHERS) <= {path.name for path in ROOT.iterdir()}


def test_a_folder_that_does_not_say_what_is_in_it_is_an_error(tmp_path):
    (tmp_path / "__init__.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match="has no docstring"):
        generated._first_sentence(tmp_path / "__init__.py")


def test_settings_have_every_variable_in_both_languages():
    names = [each.name for each in (*VARIABLES, *OPTIONS)]
    for made in (generated.settings(), generated.settings_in_chinese()):
        assert re.findall(r"^\| `(\w+)` ", made, re.MULTILINE) == names
    assert set(chinese.SETTINGS) == set(chinese.VALID) == set(names)


def test_values_that_a_setting_takes_are_told_in_both_languages():
    for each in (*VARIABLES, *OPTIONS):
        words = re.findall(r"`([a-z_0-9]+)`", each.about)
        told = chinese.SETTINGS[each.name] + chinese.VALID[each.name]
        assert [word for word in words if f"`{word}`" not in told and not word.isdigit()] == [], each.name


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_have_every_option(name):
    text = generated.commands()
    part = text[text.index(f"### asd {name}\n") :].split("\n### ")[0]
    assert f"asd {ALIASES[name]}" in part if name in ALIASES else "also `asd" not in part
    for action in parser_of(name)._actions:
        if action.help != "==SUPPRESS==" and "--help" not in action.option_strings:
            word = action.option_strings[-1] if action.option_strings else str(action.metavar or action.dest)
            assert word in part


@pytest.mark.parametrize("name", ["index", "how-it-works", "operations", "debugging", "settings", "limits"])
def test_these_pages_are_there_in_chinese(name):
    assert len(re.findall("[\u4e00-\u9fff]", (DOCS / f"{name}.zh.md").read_text(encoding="utf-8"))) > 100


def test_metrics_are_those_that_a_scrape_shows():
    registry = CollectorRegistry()
    registry.register(generated.agent_collector())
    served = re.findall(r"^# TYPE (asd_\w+) (\w+)$", generate_latest(registry).decode(), re.MULTILINE)
    listed = re.findall(r"^\| `(asd_\w+)` \| (\w+)", generated.metrics(), re.MULTILINE)
    assert sorted(listed) == sorted(served)


def test_runbook_has_a_part_for_each_alert_as_its_link_says():
    rules = (ROOT / "exporters" / "alerts" / "asd_rules.yml").read_text()
    headings = set(re.findall(r"^## (\w+)$", (DOCS / "alerts.md").read_text(), re.MULTILINE))
    assert set(re.findall(r"alert: (\w+)", rules)) == headings


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


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_every_link_leads_somewhere(tmp_path):
    pytest.importorskip("material")
    command = [sys.executable, "-m", "mkdocs", "--quiet", "build", "--strict", "--site-dir", tmp_path / "site"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(links.wrong_in_site(tmp_path / "site")) == []
    assert "<!-- generated" not in "".join(path.read_text() for path in (tmp_path / "site").glob("*.html"))
    assert "asd_strikes_in_window" in (tmp_path / "site" / "metrics.html").read_text()
