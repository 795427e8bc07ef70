"""The report: what it says in words, what it shows, and that nothing in a file can break or take over the page."""

import base64
import hashlib
import json
import math
import os
import re
import socket
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asd import Level, StateError
from asd.exporters.pictures.values import Point, plot_values
from asd.exporters.report.bundles import read_histories
from asd.exporters.report.data import read_run
from asd.exporters.report.page import render, summary
from asd.exporters.report.words import verdict_on
from asd.rundir.names import event_file, status_file
from tests.support.events import event_maker
from tests.support.run_of_ranks import OUT, SITES, START, Rank

HTML = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"
GOLDEN = Path(__file__).with_name("golden_page.txt")
"""The page of `scene`, an element a line. After a change that is meant, the new one is at the place the test names."""


def words(folder, **options):
    verdict = verdict_on(read_run(folder, **options))
    return verdict.tone, verdict.lead, verdict.more


def page_of(folder, output=None):
    data = read_run(folder, now=START + 1000)
    return render(data, output or folder / "report.html", now=START + 1000, version="1.0")


def parsed(page):
    return ElementTree.fromstring(page)


def section(page, name):
    return next((each for each in parsed(page).iter(f"{HTML}section") if each.get("id") == name), None)


def shown(element):
    return " ".join("".join(element.itertext()).split())


def rows(page, name):
    rows = [row for body in section(page, name).iter(f"{HTML}tbody") for row in body.iter(f"{HTML}tr")]
    return [[shown(cell) for cell in row] for row in rows]


def scene(folder):
    """Two runs in one folder, in which every sort of event comes, and files that can't be read."""
    earlier = Rank(folder, 3, run="earlier")
    earlier.now -= 600
    earlier.train(1, 4, {4: {OUT: 2e4}}, refused=False)
    Rank(folder, 0).train(1, 30).end()
    Rank(folder, 2, device="CPU:0", evidence=False).train(1, 30).end(active=True, machine="node7")
    follower = Rank(folder, 1, host="node8.<example>").train(1, 24)
    follower.train(25, 25, refused=True).tell("follower", 25, refused=True)
    follower.monitor.problem("the disk is full & slow")
    follower.train(26, 30).end(dropped={"EventLog": 2}, active=False)
    culprit = Rank(folder, 3).train(1, 30, {25: {OUT: 5e8, SITES[1]: math.inf}, 27: {OUT: 2e4}})
    culprit.tell("replay", 25, verdict="persistent", reason="the same wrong answer")
    culprit.tell("isolation", 25, verdict="persistent").tell("stress", 0, level=Level.ERROR, reason="3 of 9 products")
    culprit.tell("recovery", 25, recovered_by="person").end()
    with event_file(folder, 0).open("a") as log:
        log.write("not json\n")
    status_file(folder, 9).write_text("{")


def normal(page, folder):
    """A page an element a line, without what another day or another release has."""
    for pattern, put in (
        (re.escape(str(folder)), "RUN_DIR"),
        ("<style>.*?</style>", "<style/>"),
        ("sha256-[A-Za-z0-9+/=]*", "sha256-DIGEST"),
        (r"</a> [0-9.]+ kB", "</a> SIZE"),
    ):
        page = re.sub(pattern, put, page, flags=re.DOTALL)
    return page.replace("><", ">\n<")


def test_the_page_of_a_run_with_everything_is_as_it_was(tmp_path):
    scene(tmp_path / "run")
    found = normal(page_of(tmp_path / "run"), tmp_path / "run")
    new = tmp_path / GOLDEN.name
    new.write_text(found, encoding="utf-8")
    assert found.splitlines() == GOLDEN.read_text(encoding="utf-8").splitlines(), f"the new page is {new}"


def test_the_summary_for_programs_says_the_same(tmp_path):
    scene(tmp_path)
    said = json.loads(json.dumps(summary(read_run(tmp_path)), allow_nan=False))
    assert said["verdict"]["tone"] == "bad"
    assert said["codes"]["80818C00"]["sensor_type"] == "Check Sensor"
    rest = dict.fromkeys(("follower", "problem", "replay", "isolation", "recovery", "stress"), 1)
    assert said["events"] == {"first": 2, "second": 2, **rest}
    found = [(each["run"], each["rank"], each["first"], each["isolated"]) for each in said["ranks"]]
    quiet = [("earlier", 3, 0, False), *(("run1", rank, 0, False) for rank in range(3))]
    assert found == [*quiet, ("run1", 3, 2, False)]
    assert (said["refused"], [Path(path).name for path in said["evidence"]]) == (2, ["rank3-step25"])


# What it says


def test_a_clean_run_is_said_to_have_no_anomaly(tmp_path):
    for rank in range(4):
        Rank(tmp_path, rank).train(1, 100).end()
    tone, lead, more = words(tmp_path)
    assert (tone, "1,200 checks of 4 ranks" in lead, more) == ("good", True, [])


HIT, LIMIT = "node7 device Ascend:0 (rank 0)", "limit 1e6"


@pytest.mark.parametrize(
    ("ranks", "refused", "parts"),
    [
        ([{5: {OUT: math.inf}}], False, ("1 first", HIT, f"at step 5 in {OUT} (value inf, {LIMIT})", "not refused")),
        ([{5: {OUT: 5e8, SITES[1]: 3e7}}, {}], None, ("2 first", HIT, f"step 5 in {OUT} (value 5e8", "was refused")),
        # The earliest step, not the loudest.
        ([{7: {OUT: 1e30}, 8: {OUT: 1e30}}, {6: {OUT: 2e6}}], None, ("3 first", "2 devices", "Ascend:1", "step 6")),
        ([{5: {OUT: 2e4}}], False, ("1 second", HIT, "No first-level anomaly in 27 checks")),
    ],
)
def test_the_lead_names_what_matters_most(tmp_path, ranks, refused, parts):
    for rank, broken in enumerate(ranks):
        Rank(tmp_path, rank).train(1, 9, broken, refused=refused).end()
    lead = words(tmp_path)[1]
    assert [part for part in parts if part not in lead] == []


def test_the_lead_and_the_first_plots_are_of_the_rank_that_a_replay_accuses(tmp_path):
    """All ranks raise in the step of a wrong gradient, and another attempt gives the number of the rank to another."""
    for rank, value in ((0, 9e8), (1, 5e8)):
        each = Rank(tmp_path, rank).train(1, 9, {5: {OUT: value}})
        (each.tell("replay", 5, verdict="persistent") if rank == 1 else each).end()
    Rank(tmp_path, 1, run="run1+2", device="Ascend:2").train(1, 9, {3: {SITES[1]: 2e6}}).end()
    parts = ("3 first", "3 devices in 2 runs", "first on node7 device Ascend:1 (rank 1) at step 5")
    assert [part for part in parts if part not in words(tmp_path)[1]] == []
    plots = [shown(each) for each in section(page_of(tmp_path), "values").iter(f"{HTML}figcaption")]
    assert all("node7 Ascend:1" in each for each in plots[: len(SITES)])
    assert plots[0].startswith(OUT)


def test_a_rank_whose_process_is_gone_ended_without_saying_so(tmp_path):
    here = socket.gethostname()
    Rank(tmp_path, 2, host=here, evidence=False).train(1, 3).end(active=True, machine=here, pid=2**22 + 1)
    assert read_run(tmp_path).ranks[0].state == "lost"
    tone, lead, more = words(tmp_path)
    assert (tone, f"{here} device Ascend:2 (rank 2)" in lead, more) == ("warn", True, [])


@pytest.mark.parametrize(("age", "state"), [(60, "running"), (600, "silent")])
def test_a_rank_of_another_machine_is_silent_when_it_was_not_heard_of_for_long(tmp_path, age, state):
    Rank(tmp_path).train(1, 3).end(active=True, machine="node7")
    assert read_run(tmp_path, now=START + 6 + age).ranks[0].state == state
    assert ("2026-09-21T14:13:26Z" in words(tmp_path, now=START + 6 + age)[1]) == (state == "silent")


# What is not there or can't be read


def test_an_empty_folder_is_a_report_that_says_so(tmp_path):
    assert words(tmp_path)[::2] == ("unknown", [])
    assert [each.get("id") for each in parsed(page_of(tmp_path)).iter(f"{HTML}section")] == [None]


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_a_missing_folder_is_one_clear_sentence(tmp_path, kind):
    path = tmp_path / "run"
    if kind == "file":
        path.touch()
    with pytest.raises(StateError, match=re.escape(str(path))):
        read_run(path)


def test_anomalies_whose_events_are_lost_are_still_told(tmp_path):
    Rank(tmp_path).train(1, 9, {5: {OUT: 5e8}, 7: {OUT: 5e8}}).end()
    log = event_file(tmp_path, 0)
    log.write_bytes(log.read_bytes().splitlines(keepends=True)[0])
    assert words(tmp_path)[1].startswith("2 first-level anomalies")
    assert len(words(tmp_path)[2]) == 1
    log.unlink()
    assert words(tmp_path)[1].startswith("2 first-level anomalies")


def test_what_could_not_be_read_is_named_and_the_rest_is_told(tmp_path):
    Rank(tmp_path).train(1, 9, {5: {OUT: 5e8}}).end()
    with event_file(tmp_path, 0).open("ab") as log:
        log.write(b"not json\n" + b"x" * (2 << 20) + b'\n{"specver')
    status_file(tmp_path, 1).write_text("{")
    (values,) = tmp_path.glob("evidence/*/*/values.csv")
    values.write_text(values.read_text() + "x,y\n")
    page = page_of(tmp_path)
    found = [shown(item).partition(": ") for item in section(page, "unreadable").iter(f"{HTML}li")]
    reasons = {name: reason for name, _, reason in found}
    assert list(reasons) == ["events-rank0.jsonl", "status-rank1.json", "evidence/run1/rank0-step5/values.csv"]
    said = list(reasons.values())
    assert (said[0][:7], said[1].partition(":")[0], said[2][:5]) == ("3 lines", "not a status", "1 row")
    assert verdict_on(read_run(tmp_path)).lead.startswith("1 first-level anomaly")


def test_values_that_are_too_large_or_no_csv_do_no_harm(tmp_path):
    Rank(tmp_path).train(1, 3, {3: {OUT: 5e8}}).end()
    (values,) = tmp_path.glob("evidence/*/*/values.csv")
    values.write_bytes(b"\0\xff,\n" + b'"' * 200_000)
    unreadable = {}
    assert read_histories(read_run(tmp_path).bundles, unreadable) == {("run1", 0): {}}
    assert list(unreadable) == ["evidence/run1/rank0-step3/values.csv"]


# The page


def test_what_a_link_or_a_pipe_leads_to_is_neither_read_nor_shown(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("root:secret\n")
    run = tmp_path / "run"
    for step in (1, 2):
        (run / f"evidence/llama/rank0-step{step}").mkdir(parents=True)
    (run / "events-rank1.jsonl").symlink_to(secret)
    (run / "evidence/llama/rank0-step1/values.csv").symlink_to(secret)
    os.mkfifo(run / "evidence/llama/rank0-step2/values.csv")
    data = read_run(run)
    read_histories(data.bundles, data.unreadable)
    assert ["link" in reason for reason in sorted(data.unreadable.values())] == [True, True, False]


def test_the_page_can_load_and_run_nothing(tmp_path):
    scene(tmp_path)
    root = parsed(page_of(tmp_path))
    tags = {each.tag.replace(HTML, "").replace(SVG, "svg:") for each in root.iter()}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "form", "base", "svg:script", "svg:use"}
    assert not [each for each in root.iter() if each.get("src") is not None or each.get("style") is not None]
    (style,) = root.iter(f"{HTML}style")
    digest = base64.b64encode(hashlib.sha256(style.text.encode()).digest()).decode()
    (policy,) = [each.get("content") for each in root.iter(f"{HTML}meta") if each.get("http-equiv")]
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert "url(" not in style.text
    assert "@import" not in style.text


EVIL = "a'b\"c<script>alert(1)</script>&amp;\n]]>-->\x00\x1b\u202e</style><img src=x onerror=alert(1)>模型"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(st.one_of(st.just(EVIL), st.text(max_size=30)), min_size=5, max_size=5))
def test_no_text_of_a_file_becomes_markup(tmp_path_factory, names):
    run, host, device, site, reason = names
    folder = tmp_path_factory.mktemp("run")
    rank = Rank(folder, run=run, host=host, device=device or "x", sites=(site or "x",), evidence=False)
    rank.train(1, 3, {2: {site or "x": 5e8}})
    rank.monitor.problem(reason)
    rank.tell("replay", 2, verdict="software", reason=reason, evidence=f"/{site}/{reason}").end()
    allowed = set(re.findall(r"<([a-z0-9]+)", GOLDEN.read_text(encoding="utf-8")))
    root = parsed(page_of(folder))
    assert {each.tag.rpartition("}")[2] for each in root.iter()} <= allowed
    assert not [name for each in root.iter() for name in each.attrib if name.lower().startswith("on")]
    if reason.isprintable() and reason.strip() == reason and "  " not in reason:
        assert reason in [shown(cell) for cell in root.iter(f"{HTML}td")] or not reason


@pytest.mark.parametrize("run", ["run1", "大模型 #1?", "a%20b", "..", "javascript:alert(1)", "x:y//z"])
@pytest.mark.parametrize("place", [".", "out", "../elsewhere #1"])
def test_the_links_lead_to_the_evidence_from_wherever_the_page_lies(tmp_path, run, place):
    folder = tmp_path / "run dir?"
    Rank(tmp_path / "before", run=run).train(1, 9, {5: {OUT: 5e8}}).end()
    (tmp_path / "before").rename(folder)
    output = folder / place / "r.html"
    output.parent.mkdir(exist_ok=True)
    targets = {each.get("href") for each in parsed(page_of(folder, output)).iter(f"{HTML}a")}
    assert all(target.startswith("./") and not set(target) & set(" #?:\"'") for target in targets)
    found = {(output.parent / unquote(target)).resolve() for target in targets}
    (bundle,) = folder.resolve().glob("evidence/*/rank0-step5")
    assert found == {bundle, *bundle.iterdir()}


def test_a_large_run_is_a_small_page_with_the_first_grave_events_and_the_newest(tmp_path):
    made = event_maker(run="r", host="h", refused=False)
    lines = {rank: [] for rank in range(40)}
    for i in range(8_000):
        rank = i % 40
        level = Level.ERROR if rank == 33 else Level.WARNING
        device, site = f"Ascend:{rank}", SITES[i % 3]
        event = made(i // 40, rank=rank, device=device, checkpoint=site, level=level, time=START + i)
        lines[rank].append(event.to_json() + "\n")
    for rank, each in lines.items():
        event_file(tmp_path, rank).write_text("".join(each))
    page = page_of(tmp_path)
    assert len(page) < 1_000_000
    assert "200 first-level anomalies on h device Ascend:33 (rank 33)" in page
    table = rows(page, "events")
    assert (len(table), table[0][1], table[-1][4]) == (300, "first level", "199")
    assert "8,000 events" in page
    (details,) = section(page, "ranks").iter(f"{HTML}details")
    assert shown(details[0]) == "16 more ranks"
    assert "33" in {cells[0] for cells in rows(page, "ranks")}


def test_without_evidence_the_last_values_are_shown_the_nearest_to_its_limit_first(tmp_path):
    rank = Rank(tmp_path, evidence=False).train(1, 9)
    rank.train(10, 10, {10: {OUT: 9000.0}}).end()
    table = rows(page_of(tmp_path), "values")
    assert table[0] == ["0", "node7 Ascend:0", OUT, "9000", "1e6", "0.009"]
    assert len(table) == 3


def test_the_plots_begin_with_the_checkpoint_that_broke_first(tmp_path):
    sites = tuple(f"site{i}" for i in range(20))
    Rank(tmp_path, sites=sites).train(1, 9, {5: {"site7": 5e8}, 8: {"site3": 5e9, "site9": 2e4}}).end()
    page = page_of(tmp_path)
    names = [shown(each[0]) for each in section(page, "values").iter(f"{HTML}figcaption")]
    assert (names[:3], len(names)) == (["site7", "site3", "site9"], 20)
    folded = [shown(each[0]) for each in section(page, "values").iter(f"{HTML}details")]
    assert folded == ["8 more checkpoints", "8 more checkpoints"]


# The pictures


def assert_inside(root):
    """Everything drawn lies within the picture."""
    _, _, width, height = map(float, root.get("viewBox").split())
    for each in root.iter():
        kind, places = each.tag.rpartition("}")[2], []
        if kind == "polyline":
            places = [tuple(map(float, pair.split(","))) for pair in each.get("points").split()]
        elif kind == "path":
            places = [tuple(map(float, each.get("transform")[len("translate(") : -1].split()))]
        elif kind in ("text", "rect", "circle"):
            places = [(float(each.get("x") or each.get("cx")), float(each.get("y") or each.get("cy")))]
        assert all(-0.1 <= x <= width + 0.1 and -0.1 <= y <= height + 0.1 for x, y in places), places


values = st.one_of(st.floats(), st.sampled_from([0.0, math.inf, -math.inf, math.nan, 1e6, 5e-324, 1.7e308]))
points = st.builds(Point, st.integers(0, 10**7), values, values, st.sampled_from(["", "first", "second"]))


@given(points=st.lists(points, min_size=1, max_size=60, unique_by=lambda point: point.step))
def test_every_plot_is_inside_its_picture(points):
    assert_inside(parsed(plot_values("a <name>", sorted(points))))


def polylines(points):
    root = parsed(plot_values("a", points))
    return [(each.get("class"), each.get("points").split()) for each in root.iter(f"{SVG}polyline")]


def test_the_gap_between_two_bundles_is_not_bridged():
    near = [Point(step, 1.0 + step % 2, math.inf, "") for step in (*range(1, 11), *range(500, 511))]
    assert [kind for kind, _ in polylines(near)] == ["value", "value"]


def test_a_long_history_keeps_its_largest_value():
    long = [Point(step, 1e9 if step == 4321 else 1.0, 1e6, "") for step in range(10_000)]
    heights = [float(pair.partition(",")[2]) for pair in dict(polylines(long))["value"]]
    assert len(heights) < 500
    assert min(heights) < 30
