"""The report: what it says in words, what it draws, and that nothing in a file can break or take over the page."""

import base64
import hashlib
import json
import math
import multiprocessing
import os
import random
import signal
import socket
import time
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asd import Config, Event, Level, StateError
from asd.exporters.bundle.sink import Evidence
from asd.exporters.pictures.chart import mark
from asd.exporters.pictures.markup import number, tag, text, utc
from asd.exporters.pictures.values import Point, plot_ratio, plot_values
from asd.exporters.report.bundles import facts, read_histories
from asd.exporters.report.data import SORTS, read_run
from asd.exporters.report.page import render, summary
from asd.exporters.report.timeline import draw_timeline
from asd.exporters.report.words import verdict_on
from asd.exporters.run_files.event_log import EventLog
from asd.origin import Origin
from asd.rules.readings.reading import Capture, Reading
from asd.rules.step.monitor import Monitor
from asd.rundir.names import event_file, status_file
from tests.support.events import made_of

START = 1_790_000_000.0
SITES = ("model.layers.0.attention_norm", "model.layers.1.ffn_norm", "model.norm_out")
HTML = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"


class Rank:
    """A rank whose training is the real monitor with the real sinks and a clock that goes two seconds a step."""

    def __init__(self, folder, rank=0, *, run="run1", host="node7", device=None, sites=SITES, evidence=True):
        self.folder, self.now, self.sites = folder, START + rank / 100, sites
        self.origin = Origin(run, rank, host, device or f"Ascend:{rank}")
        config = Config(protection="document", enable=1, run_dir=str(folder), on_anomaly="skip")
        sinks = [EventLog(event_file(folder, rank)), *([Evidence(config, self.origin)] if evidence else [])]
        self.monitor = Monitor(config, self.origin, sinks, clock=lambda: self.now)
        self.values = random.Random(rank)
        self.monitor.begin()

    def train(self, first, last, broken=None, *, refused=None, captures=()):
        """Steps `first` to `last`; `broken` has step to the values of some checkpoints."""
        for step in range(first, last + 1):
            self.now += 2
            values = {site: self.values.uniform(0.01, 0.03) for site in self.sites}
            wrong = (broken or {}).get(step, {})
            readings = [
                Reading(site, value, value, int(not math.isfinite(value)), 1, order=-self.sites.index(site))
                for site, value in {**values, **wrong}.items()
            ]
            self.monitor.judge(
                step, readings, refused=bool(wrong) if refused is None else refused, captures=captures if wrong else ()
            )
        return self

    def tell(self, kind, step, **more):
        self.now += 1
        fields = {
            **asdict(self.origin), "step": step, "checkpoint": "", "value": math.nan, "limits": (),
            "level": Level.NORMAL, "kind": kind, "rule": "threshold", "feature": "l2", "reason": "", "refused": False,
            "time": self.now, **more,
        }  # fmt: skip
        self.monitor.publish(made_of(Event, **fields))
        return self

    def end(self, **status):
        """Ends the training; or leaves it with a status of this kind."""
        if status:
            for name, value in status.items():
                setattr(self.monitor.status, name, value)
        else:
            self.monitor.end()
        status_file(self.folder, self.origin.rank).write_text(self.monitor.status.to_json())
        return self


def words(folder, **options):
    verdict = verdict_on(read_run(folder, **options))
    return verdict.tone, verdict.lead, verdict.more


def page_of(folder, output=None, **options):
    options.setdefault("now", START + 1000)
    return render(read_run(folder, **options), output or folder / "report.html", now=START + 1000, version="1.0")


def parsed(page):
    return ElementTree.fromstring(page)


def section(page, name):
    return next((each for each in parsed(page).iter(f"{HTML}section") if each.get("id") == name), None)


def shown(element):
    return " ".join("".join(element.itertext()).split())


def rows(page, name):
    return [
        [shown(cell) for cell in row]
        for body in section(page, name).iter(f"{HTML}tbody")
        for row in body.iter(f"{HTML}tr")
    ]


# What it says


def test_an_endless_name_does_not_fill_the_verdict(tmp_path):
    endless = "n" * 100_000
    event = made_of(
        Event, run="r", rank=0, host="h", device="Ascend:0", step=1, checkpoint=endless, value=2e6, limits=(1e6,),
        level=Level.ERROR, kind="anomaly", rule="threshold", feature="l2", reason="r", refused=True, time=START,
    )  # fmt: skip
    EventLog(tmp_path / "events-rank0.jsonl")(event)
    assert len(words(tmp_path)[1]) < 1000


def test_a_clean_run_is_said_to_have_no_anomaly(tmp_path):
    for rank in range(4):
        Rank(tmp_path, rank).train(1, 100).end()
    assert words(tmp_path) == ("good", "No anomaly in 1,200 checks of 4 ranks, up to step 100.", [])


def test_the_verdict_names_device_rank_step_checkpoint_and_what_became_of_the_update(tmp_path):
    for rank in (0, 1, 2):
        Rank(tmp_path, rank).train(1, 60).end()
    Rank(tmp_path, 3).train(1, 60, {40: {"model.norm_out": 5e8, "model.layers.1.ffn_norm": 3e7}}).end()
    tone, lead, more = words(tmp_path)
    assert (tone, more) == ("bad", [])
    assert lead == (
        "2 first-level anomalies on node7 device Ascend:3 (rank 3), first at step 40 in model.norm_out (value 5e8, "
        "limit 1e6); the update was refused; no other rank was affected."
    )


def test_an_update_that_was_applied_is_not_called_refused(tmp_path):
    Rank(tmp_path).train(1, 9, {5: {"model.norm_out": math.inf}}, refused=False).end()
    assert words(tmp_path)[1] == (
        "1 first-level anomaly on node7 device Ascend:0 (rank 0), at step 5 in model.norm_out (value inf, limit 1e6); "
        "the update was not refused."
    )


def test_the_first_anomaly_is_that_of_the_earliest_step_not_the_loudest(tmp_path):
    Rank(tmp_path, 0).train(1, 20, {9: {"model.norm_out": 1e30}, 11: {"model.norm_out": 1e30}}).end()
    Rank(tmp_path, 1).train(1, 20, {8: {"model.norm_out": 2e6}}).end()
    assert words(tmp_path)[1] == (
        "3 first-level anomalies on 2 devices, first on node7 device Ascend:1 (rank 1) at step 8 in model.norm_out "
        "(value 2e6, limit 1e6); all of the 3 updates were refused."
    )


def test_a_device_that_failed_in_two_runs_of_one_folder_is_one_device(tmp_path):
    earlier = Rank(tmp_path, run="run1").train(1, 9, {6: {"model.norm_out": 5e8}})
    earlier.end()
    later = Rank(tmp_path, run="run2")
    later.now = earlier.now
    later.train(1, 9, {7: {"model.norm_out": 6e8}}).end(started=earlier.now)
    assert words(tmp_path)[1] == (
        "2 first-level anomalies on node7 device Ascend:0 (rank 0) in 2 runs, first at step 6 in model.norm_out "
        "(value 5e8, limit 1e6); all of the 2 updates were refused."
    )


def test_ranks_that_refused_the_update_too_are_no_second_anomaly(tmp_path):
    Rank(tmp_path, 0).train(1, 9, {5: {"model.norm_out": 5e8}}).end()
    other = Rank(tmp_path, 1).train(1, 4)
    watch = other.train(5, 5, refused=True).monitor
    watch.publish(watch.reports.follower(5))
    other.train(6, 9).end()
    lead = words(tmp_path)[1]
    assert "the update was refused on all ranks; the other rank was not affected." in lead
    assert summary(read_run(tmp_path))["refused"] == 1


def test_second_level_anomalies_are_warnings(tmp_path):
    Rank(tmp_path).train(1, 9, {5: {"model.norm_out": 2e4}}, refused=False).end()
    assert words(tmp_path) == (
        "warn",
        "1 second-level anomaly, which is a warning, on node7 device Ascend:0 (rank 0). No first-level anomaly in 27 "
        "checks of 1 rank, up to step 9.",
        [],
    )


def test_problems_of_the_detector_come_first_when_nothing_worse_happened(tmp_path):
    rank = Rank(tmp_path).train(1, 9)
    rank.monitor.problem("the kernel can't be loaded")
    rank.end(dropped={"EventLog": 2}, active=False)
    assert words(tmp_path) == (
        "warn",
        "The detector itself had 1 problem on node7 device Ascend:0 (rank 0): “the kernel can't be loaded”. No anomaly "
        "in 27 checks of 1 rank, up to step 9.",
        ["Not everything could be handed on; it failed in EventLog 2 times."],
    )


def test_replay_isolation_and_recovery_are_told(tmp_path):
    rank = Rank(tmp_path, 3).train(1, 9, {5: {"model.norm_out": 5e8}})
    rank.tell("replay", 5, verdict="persistent", reason="the same wrong answer")
    rank.tell("isolation", 5, verdict="persistent").tell("recovery", 5).end()
    assert words(tmp_path)[2] == [
        "The replay of step 5 of rank 3 on Ascend:3 found hardware that fails each time (persistent).",
        "node7 device Ascend:3 was taken out of the job at 2026-09-21T14:13:40Z and given back at "
        "2026-09-21T14:13:41Z.",
    ]
    assert read_run(tmp_path).ranks[0].isolated is False


def train_until_killed(folder, ready):
    rank = Rank(folder, 2, host=socket.gethostname(), evidence=False)
    rank.now = time.time()
    rank.train(1, 3).end(active=True)
    ready.set()
    time.sleep(60)


def test_a_rank_that_was_killed_ended_without_saying_so(tmp_path):
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    process = context.Process(target=train_until_killed, args=(tmp_path, ready))
    process.start()
    assert ready.wait(30)
    assert read_run(tmp_path).ranks[0].state == "running"
    os.kill(process.pid, signal.SIGKILL)
    process.join(30)
    tone, lead, more = words(tmp_path)
    assert (tone, more) == ("warn", [])
    name = f"{socket.gethostname()} device Ascend:2 (rank 2)"
    assert lead.startswith(f"{name} ended without saying so: its process is gone, last heard of at 20")
    assert lead.endswith("Z. No anomaly in 9 checks of 1 rank, up to step 3.")


def test_another_process_with_the_number_of_a_dead_one_is_not_taken_for_it(tmp_path):
    Rank(tmp_path, host=socket.gethostname()).train(1, 3).end(
        active=True, pid=os.getpid(), started=1000.0, written=1001.0
    )
    assert read_run(tmp_path).ranks[0].state == "lost"


@pytest.mark.parametrize(("age", "state"), [(60, "running"), (600, "silent")])
def test_a_rank_of_another_machine_is_silent_when_it_was_not_heard_of_for_long(tmp_path, age, state):
    Rank(tmp_path).train(1, 3).end(active=True, machine="node7")
    assert read_run(tmp_path, now=START + 6 + age).ranks[0].state == state
    if state == "silent":
        said = words(tmp_path, now=START + 6 + age)[1]
        assert said.startswith("node7 device Ascend:0 (rank 0) has not been heard of since 2026-09-21T14:13:26Z.")


def test_an_empty_folder_is_a_report_that_says_so(tmp_path):
    assert words(tmp_path) == (
        "unknown", "This folder holds no events and no counts of a run, so nothing can be said about it.", [],
    )  # fmt: skip
    assert [each.get("id") for each in parsed(page_of(tmp_path)).iter(f"{HTML}section")] == [None]


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_a_missing_folder_is_one_clear_sentence(tmp_path, kind):
    path = tmp_path / "run"
    if kind == "file":
        path.touch()
    with pytest.raises(StateError) as caught:
        read_run(path)
    assert (
        str(caught.value)
        == f"the run folder {str(path)!r} does not exist; valid is the folder a run left, ASD_RUN_DIR."
    )


def test_anomalies_whose_events_are_lost_are_still_told(tmp_path):
    Rank(tmp_path).train(1, 9, {5: {"model.norm_out": 5e8}, 7: {"model.norm_out": 5e8}}).end()
    log = event_file(tmp_path, 0)
    log.write_bytes(log.read_bytes().splitlines(keepends=True)[0])
    assert words(tmp_path)[1].startswith("2 first-level anomalies on node7")
    assert words(tmp_path)[2] == ["The events of 1 first-level anomaly that were counted are not in the logs."]
    log.unlink()
    assert words(tmp_path)[1] == (
        "2 first-level anomalies on node7 device Ascend:0 (rank 0); their events are not in the logs."
    )


def test_an_event_that_stands_twice_is_counted_once(tmp_path):
    Rank(tmp_path).train(1, 9, {5: {"model.norm_out": 5e8}}).end()
    log = event_file(tmp_path, 0)
    (tmp_path / "events-rank0.jsonl.1").write_bytes(log.read_bytes())
    assert len(read_run(tmp_path).events) == 1


def test_events_of_a_run_before_are_kept_apart(tmp_path):
    Rank(tmp_path, run="old").train(1, 9, {7: {"model.norm_out": 5e8}}).end()
    later = Rank(tmp_path, run="new")
    later.now += 3600
    later.monitor.status.started = later.now
    later.train(1, 9, {3: {"model.norm_out": 6e8}}).end()
    data = read_run(tmp_path)
    assert [(rank.run, rank.count("first")) for rank in data.ranks] == [("old", 1), ("new", 1)]
    assert "at step 7 in" in verdict_on(data).lead
    assert [row[1] for row in rows(page_of(tmp_path), "ranks")] == ["old", "new"]


# What can't be read


def test_what_could_not_be_read_is_named_and_the_rest_is_told(tmp_path):
    Rank(tmp_path).train(1, 9, {5: {"model.norm_out": 5e8}}).end()
    with event_file(tmp_path, 0).open("ab") as log:
        log.write(b"not json\n" + b"x" * (2 << 20) + b'\n{"specver')
    status_file(tmp_path, 1).write_text("{")
    (values,) = tmp_path.glob("evidence/*/*/values.csv")
    values.write_text(values.read_text() + "x,y\n")
    values.with_name("tensor.json").write_text("[")
    page = page_of(tmp_path)
    found = [shown(item).partition(": ") for item in section(page, "unreadable").iter(f"{HTML}li")]
    assert [name for name, _, _ in found] == [
        "events-rank0.jsonl", "status-rank1.json", "evidence/run1/rank0-step5/values.csv",
        "evidence/run1/rank0-step5/tensor.json",
    ]  # fmt: skip
    reasons = [reason for _, _, reason in found]
    assert reasons[0].startswith("3 lines are no event and passed over; line 2: not an event: Expecting ")
    assert reasons[1].startswith("not a status: ")
    assert reasons[2] == "1 row has no step, checkpoint, value and limit."
    assert verdict_on(read_run(tmp_path)).lead.startswith("1 first-level anomaly on node7")
    assert "4 files could not be read to the end; they are named below." in page


def test_values_that_are_too_large_or_no_csv_do_no_harm(tmp_path):
    Rank(tmp_path).train(1, 3, {3: {"model.norm_out": 5e8}}).end()
    (values,) = tmp_path.glob("evidence/*/*/values.csv")
    values.write_bytes(b"\0\xff,\n" + b'"' * 200_000)
    unreadable = {}
    assert read_histories(read_run(tmp_path).bundles, unreadable) == {("run1", 0): {}}
    assert list(unreadable) == ["evidence/run1/rank0-step3/values.csv"]


# The page


def test_the_page_is_well_formed_and_can_load_and_run_nothing(tmp_path):
    Rank(tmp_path).train(1, 60, {40: {"model.norm_out": 5e8}}).end()
    page = page_of(tmp_path)
    root = parsed(page)
    tags = {each.tag.replace(HTML, "").replace(SVG, "svg:") for each in root.iter()}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "form", "base", "svg:script", "svg:use"}
    assert not [each for each in root.iter() if each.get("src") is not None or each.get("style") is not None]
    (style,) = root.iter(f"{HTML}style")
    digest = base64.b64encode(hashlib.sha256(style.text.encode()).digest()).decode()
    (policy,) = [each.get("content") for each in root.iter(f"{HTML}meta") if each.get("http-equiv")]
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert "url(" not in style.text
    assert "@import" not in style.text
    addresses = [each.get("href") for each in root.iter(f"{HTML}a")]
    assert addresses
    assert all(
        address.startswith("./evidence/run1/rank0-step40") or address.startswith("././evidence")
        for address in addresses
    )


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
    allowed = {
        "html", "head", "meta", "title", "style", "body", "main", "header", "footer", "section", "article", "h1", "h2",
        "h3", "p", "span", "b", "code", "ul", "li", "dl", "div", "dt", "dd", "table", "thead", "tbody", "tr", "th",
        "td", "details", "summary", "wbr", "a", "svg", "g", "line", "rect", "path", "text",
    }  # fmt: skip
    root = parsed(page_of(folder))
    assert {each.tag.rpartition("}")[2] for each in root.iter()} <= allowed
    assert not [name for each in root.iter() for name in each.attrib if name.lower().startswith("on")]
    if reason.isprintable() and reason.strip() == reason and "  " not in reason:
        assert reason in [shown(cell) for cell in root.iter(f"{HTML}td")] or not reason


@pytest.mark.parametrize("run", ["run1", "大模型 #1?", "a%20b", "..", "javascript:alert(1)", "x:y//z"])
@pytest.mark.parametrize("place", [".", "out", "../elsewhere #1"])
def test_the_links_lead_to_the_evidence_from_wherever_the_page_lies(tmp_path, run, place):
    folder = tmp_path / "run dir?"
    tensor = Capture("model.norm_out", 1, (4,), "float32", 0, bytes(16))
    Rank(folder, run=run).train(1, 9, {5: {"model.norm_out": 5e8}}, captures=(tensor,)).end()
    output = folder / place / "r.html"
    output.parent.mkdir(exist_ok=True)
    targets = {each.get("href") for each in parsed(page_of(folder, output)).iter(f"{HTML}a")}
    assert all(target.startswith("./") and not set(target) & set(" #?:\"'") for target in targets)
    found = {(output.parent / unquote(target)).resolve() for target in targets}
    (bundle,) = folder.resolve().glob("evidence/*/rank0-step5")
    assert found == {bundle, *bundle.iterdir()}


def test_the_links_hold_after_the_folder_of_the_run_has_moved(tmp_path):
    Rank(tmp_path / "before").train(1, 9, {5: {"model.norm_out": 5e8}}).end()
    (tmp_path / "before").rename(tmp_path / "after")
    cell = rows(page_of(tmp_path / "after"), "events")[0][-1]
    assert cell == "value above the first absolute threshold 1000000; update refused; evidence"


def test_the_table_of_ranks_has_the_counts(tmp_path):
    Rank(tmp_path, 0).train(1, 9).end()
    rank = Rank(tmp_path, 1).train(1, 9, {5: {"model.norm_out": 5e8, "model.layers.1.ffn_norm": 2e4}})
    rank.monitor.problem("full disk")
    rank.tell("isolation", 5).end()
    assert rows(page_of(tmp_path), "ranks") == [
        ["0", "Ascend:0node7", "ended", "27", "0", "0", "0", "0", "0", "9", "2026-09-21T14:13:38Z"],
        ["1", "Ascend:1node7", "ended, isolated", "27", "1", "1", "1", "1", "1", "9", "2026-09-21T14:13:38Z"],
    ]


def test_of_many_events_the_first_grave_ones_and_the_newest_are_shown(tmp_path):
    log = Rank(tmp_path, evidence=False).tell("replay", 1, verdict="transient", reason="the first of all")
    for step in range(2, 1003):
        log.tell("follower", step, refused=True)
    page = page_of(tmp_path)
    table = rows(page, "events")
    assert len(table) == 301
    assert table[0][-1] == "transient: the first of all"
    assert table[1] == ["702 updates refused by another rank left out before this"]
    assert table[-1][4] == "1,002"
    assert "1,002 events, the newest last: the first grave ones and the newest; the logs have the rest." in page


def test_a_large_run_is_a_small_page_in_seconds(tmp_path):
    lines = {rank: [] for rank in range(8)}
    for i in range(20_000):
        level = Level.ERROR if i % 20 == 0 else Level.WARNING
        event = made_of(
            Event,
            run="r",
            rank=i % 8,
            host="h",
            device=f"Ascend:{i % 8}",
            step=i // 8,
            checkpoint=SITES[i % 3],
            value=2e6,
            limits=(1e6,),
            level=level,
            kind="anomaly",
            rule="threshold",
            feature="l2",
            reason="r",
            refused=False,
            time=START + i,
        )
        lines[i % 8].append(event.to_json() + "\n")
    for rank, each in lines.items():
        event_file(tmp_path, rank).write_text("".join(each))
    page = page_of(tmp_path)
    assert len(page) < 1_000_000
    assert "1,000 first-level anomalies on 2 devices" in page


def test_many_ranks_without_events_are_folded(tmp_path):
    for rank in range(40):
        Rank(tmp_path, rank, evidence=False).train(1, 2, {2: {"model.norm_out": 5e8}} if rank == 33 else None).end()
    page = page_of(tmp_path)
    (details,) = section(page, "ranks").iter(f"{HTML}details")
    assert shown(details[0]) == "39 more ranks without events"
    assert rows(page, "ranks")[0][0] == "33"
    assert "24 more ranks not drawn." in page
    assert "rank 33 · Ascend:33" in {shown(each) for each in section(page, "timeline").iter(f"{SVG}title")}


def test_evidence_shows_the_tensor_and_the_settings(tmp_path):
    data = bytes.fromhex("0000803f" * 63 + "0000804e")  # 63 times 1.0 and once 2**30
    tensor = Capture("model.norm_out", 1, (8, 8), "float32", 0, data)
    Rank(tmp_path).train(1, 9, {5: {"model.norm_out": 5e8}}, captures=(tensor,)).end()
    page = page_of(tmp_path)
    known = dict(rows(page, "evidence"))
    assert (known["shape"], known["max"], known["nan"]) == ("8, 8", "1.074e9", "0")
    assert known["largest element"].startswith("1.074e9 at [7, 7], bits 0x4e800000, 1.074e9 times the median magnitude")
    known = dict(rows(page, "settings"))
    assert known["on_anomaly"] == "skip"
    assert "python" in known


def test_without_evidence_the_last_values_are_shown_the_nearest_to_its_limit_first(tmp_path):
    rank = Rank(tmp_path, evidence=False).train(1, 9)
    rank.train(10, 10, {10: {"model.norm_out": 9000.0}}).end()
    table = rows(page_of(tmp_path), "values")
    assert table[0][:6] == ["0", "node7 Ascend:0", "model.norm_out", "9000", "1e6", "0.009"]
    assert [row[2] for row in table] == sorted((row[2] for row in table), key=lambda name: name != "model.norm_out")


def test_the_plots_begin_with_the_checkpoint_that_broke_first(tmp_path):
    sites = tuple(f"site{i}" for i in range(20))
    Rank(tmp_path, sites=sites).train(1, 9, {5: {"site7": 5e8}, 8: {"site3": 5e9, "site9": 2e4}}).end()
    page = page_of(tmp_path)
    names = [shown(each[0]) for each in section(page, "values").iter(f"{HTML}figcaption")]
    assert names[:3] == ["site7", "site3", "site9"]
    assert len(names) == 20
    folded = [each for each in section(page, "values").iter(f"{HTML}details") if "more" in shown(each[0])]
    assert shown(folded[0][0]) == "8 more checkpoints"


def test_the_summary_for_programs_says_the_same(tmp_path):
    Rank(tmp_path, 3).train(1, 9, {5: {"model.norm_out": 5e8}}).end()
    said = json.loads(json.dumps(summary(read_run(tmp_path)), allow_nan=False))
    assert said["verdict"]["tone"] == "bad"
    assert said["codes"]["80818C00"]["sensor_type"] == "Check Sensor"
    assert (said["checks"], said["events"]["first"], said["refused"]) == (27, 1, 1)
    assert said["ranks"][0]["device"] == "Ascend:3"
    assert [Path(path).name for path in said["evidence"]] == ["rank3-step5"]


# The pictures


def test_every_sort_of_event_has_a_shape_of_its_own():
    shapes = {parsed(tag("svg", mark(sort, 0, 0)))[0].get("d") for sort in SORTS}
    assert len(shapes) == len(SORTS)


def coordinates(root):
    for each in root.iter():
        kind = each.tag.rpartition("}")[2]
        if kind == "polyline":
            for pair in each.get("points").split():
                yield tuple(map(float, pair.split(",")))
        elif kind == "path":
            yield tuple(map(float, each.get("transform")[len("translate(") : -1].split()))
        elif kind in ("text", "rect", "circle"):
            yield float(each.get("x") or each.get("cx")), float(each.get("y") or each.get("cy"))


values = st.one_of(st.floats(), st.sampled_from([0.0, math.inf, -math.inf, math.nan, 1e6, 5e-324, 1.7e308]))
points = st.builds(Point, st.integers(0, 10**7), values, values, st.sampled_from(["", "first", "second"]))


@given(points=st.lists(points, min_size=1, max_size=60, unique_by=lambda point: point.step))
def test_every_plot_is_inside_its_picture(points):
    root = parsed(plot_values("a <name>", sorted(points)))
    assert root.get("role") == "img"
    assert root[0].text == "a <name>"
    _, _, width, height = map(float, root.get("viewBox").split())
    for x, y in coordinates(root):
        assert -0.1 <= x <= width + 0.1
        assert -0.1 <= y <= height + 0.1


def test_a_value_above_its_limit_is_drawn_above_it_and_infinity_above_all():
    root = parsed(
        plot_values("a", [Point(1, 1.0, 1e6, ""), Point(2, 1e7, 1e6, "first"), Point(3, math.nan, 1e6, "first")])
    )
    lines = {each.get("class"): each.get("points").split() for each in root.iter(f"{SVG}polyline")}
    low, high, nan = (float(place.partition(",")[2]) for place in lines["value"])
    limit = float(lines["limit"][0].partition(",")[2])
    assert low > limit > high > nan
    titles = [shown(each) for path in root.iter(f"{SVG}path") for each in path]
    assert titles == ["step 3: nan, limit 1e6 (first level)", "step 2: 1e7, limit 1e6 (first level)"]


def test_the_gap_between_two_bundles_is_not_bridged():
    near = [Point(step, 1.0 + step % 2, math.inf, "") for step in (*range(1, 11), *range(500, 511))]
    assert (
        len([each for each in parsed(plot_values("a", near)).iter(f"{SVG}polyline") if each.get("class") == "value"])
        == 2
    )


def test_a_long_history_keeps_its_largest_value():
    long = [Point(step, 1e9 if step == 4321 else 1.0, 1e6, "") for step in range(10_000)]
    (line,) = (each for each in parsed(plot_values("a", long)).iter(f"{SVG}polyline") if each.get("class") == "value")
    heights = [float(pair.partition(",")[2]) for pair in line.get("points").split()]
    assert len(heights) < 500
    assert min(heights) < 30


@given(ratio=st.floats(0))
def test_the_bar_of_a_ratio_stays_in_its_track(ratio):
    track, bar, limit = parsed(plot_ratio(ratio, "r"))[1:]
    assert 0 < float(bar.get("width")) <= float(track.get("width"))
    assert (bar.get("class") == "bar over") == (not ratio <= 1)
    if ratio >= 1:
        assert float(bar.get("width")) >= float(limit.get("x1"))


@settings(max_examples=40, deadline=None)
@given(
    seconds=st.lists(st.floats(0, 4e9), max_size=40), host=st.text(max_size=80), began=st.floats(0, 3e9),
    length=st.floats(0, 1e7),
)  # fmt: skip
def test_the_timeline_stays_inside_and_its_marks_never_overlap(tmp_path_factory, seconds, host, began, length):
    folder = tmp_path_factory.mktemp("run")
    rank = Rank(folder, host=host, evidence=False)
    for step, moment in enumerate(sorted(seconds), start=1):
        rank.now = moment
        rank.tell("problem" if step % 2 else "replay", step, reason="r")
    rank.end(active=False, started=began, written=began + length)
    picture, _ = draw_timeline(read_run(folder))
    if not picture:
        assert began == 0
        return
    root = parsed(picture)
    _, _, width, height = map(float, root.get("viewBox").split())
    for x, y in coordinates(root):
        assert -0.1 <= x <= width + 0.1
        assert -0.1 <= y <= height + 0.1
    lanes = {}
    for path in root.iter(f"{SVG}path"):
        x, y = map(float, path.get("transform")[len("translate(") : -1].split())
        lanes.setdefault(y, []).append(x)
    for places in lanes.values():
        assert all(after - before >= 12 for before, after in pairwise(places))
    assert 1 <= len([each for each in root.iter(f"{SVG}text") if each.get("class") == "tick middle"]) <= 20


def test_the_timeline_comes_near_when_everything_happened_in_a_moment_of_a_long_run(tmp_path):
    rank = Rank(tmp_path, evidence=False)
    rank.now += 86_400
    rank.train(100, 100, {100: {"model.norm_out": 5e8}}).tell("replay", 100, verdict="transient")
    rank.tell("isolation", 100)
    rank.now += 86_400
    rank.end()
    picture, note = draw_timeline(read_run(tmp_path))
    marks = [each for each in parsed(picture).iter(f"{SVG}path")]
    places = [float(each.get("transform")[len("translate(") :].split()[0]) for each in marks]
    assert places[1] - places[0] > 100
    assert note.startswith(
        "The run is known from 2026-09-21T14:13:20Z to 2026-09-23T14:13:24Z; only the part with events"
    )
    assert (
        shown(marks[0])
        == "first-level anomaly, step 100, model.norm_out, 2026-09-22T14:13:22.000Z, value 5e8, limit 1e6"
    )


# Small things


def test_a_text_is_escaped_once_and_markup_not_again():
    assert text('<a b="c">&\'') == "&lt;a b=&quot;c&quot;&gt;&amp;&#x27;"
    assert tag("b", "<", tag("i", ">"), class_="x<y") == '<b class="x&lt;y">&lt;<i>&gt;</i></b>'
    assert text("a\x00\u202eb\ud800") == "a\\x00\\u202eb\\ud800"


@pytest.mark.parametrize(
    ("value", "said"), [(5e8, "5e8"), (1.23456e-7, "1.235e-7"), (0.25, "0.25"), (math.inf, "inf"), (math.nan, "nan")]
)
def test_a_number_is_short(value, said):
    assert number(value) == said


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.inf, math.nan, 1e300])
def test_what_is_no_time_is_a_dash(seconds):
    assert utc(seconds) == "-"


def test_facts_of_any_json_are_a_flat_list(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"a": {"b": [1, 2.5, null]}, "c": [{"d": true}], "e": "text"}')
    assert facts(path, {}) == [("a.b", "1, 2.5, null"), ("c.0.d", "true"), ("e", "text")]
    assert facts(tmp_path / "missing.json", {}) == []
