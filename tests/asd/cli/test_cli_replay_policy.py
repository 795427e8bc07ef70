"""`asd replay-policy`: what another policy would have isolated."""

import json
from datetime import datetime, timezone

import pytest

from asd.cli import COMMANDS, main
from asd.exporters.run_files.event_log import EventLog
from asd.handler import Policy
from asd.handler.simulation import simulate
from asd.rundir.names import event_file
from tests.support.events import event_maker, growing

START = 1_700_000_000.0


@pytest.fixture(autouse=True)
def command(monkeypatch):
    monkeypatch.setitem(
        COMMANDS, "replay-policy", ("asd.cli.act.replay_policy", "what another policy would have isolated")
    )


made = event_maker(run="llama", value=growing, time=lambda step: START + 100.0 * step)


def event(step=1, device=3, **changes):
    return made(step, device=f"Ascend:{device}", **{"rank": device, **changes})


def write(run_dir, *events):
    for told in events:
        EventLog(event_file(run_dir, told.rank))(told)
    return str(run_dir)


def utc(seconds):
    return datetime.fromtimestamp(START + seconds, timezone.utc).isoformat(timespec="seconds")


STORY = [event(1), event(2), event(3), event(1, 4), event(20, 4), event(3, kind="isolation", time=START + 331)]


def test_the_default_policy_isolates_what_was_isolated(tmp_path, capsys):
    assert main(["replay-policy", write(tmp_path, *STORY)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split("  ")[0] == "HOST"
    assert out[1] == f"node7  Ascend:3  3     {utc(330)}  {utc(331)}  it has 3 strikes within 480 minutes"
    assert out[2] == "6 events: this policy would have isolated 1 devices, the logs tell of 1."


def test_a_stricter_policy_isolates_more_and_a_laxer_one_less(tmp_path, capsys):
    run_dir = write(tmp_path, *STORY)
    assert main(["replay-policy", run_dir, "--strikes", "2", "--json"]) == 0
    stricter = json.loads(capsys.readouterr().out)
    assert [(each["device"], each["would"], each["was"]) for each in stricter["devices"]] == [
        ("Ascend:3", utc(230), utc(331)), ("Ascend:4", utc(2030), None)
    ]  # fmt: skip
    assert main(["replay-policy", run_dir, "--strikes", "2", "--window", "1", "--policy", "strikes", "--json"]) == 0
    laxer = json.loads(capsys.readouterr().out)
    assert [(each["device"], each["would"], each["why"]) for each in laxer["devices"]] == [("Ascend:3", None, "")]
    assert main(["replay-policy", run_dir, "--max-devices", "0"]) == 0
    assert "this policy finds no reason" in capsys.readouterr().out


def test_logs_in_any_order_and_twice_give_the_same(tmp_path, capsys):
    write(tmp_path, *STORY)
    logs = sorted(map(str, tmp_path.glob("*.jsonl")))
    outs = []
    for given in (logs, logs[::-1] + logs):
        assert main(["replay-policy", *given, "--verbose"]) == 0
        outs.append(capsys.readouterr().out)
    assert outs[0] == outs[1]


def test_in_the_simulation_time_passes_as_it_did():
    hour = 3600.0
    story = [
        event(1, kind="replay", verdict="persistent", time=START),
        event(2, time=START + 49 * hour),  # released by then, so a strike of its own
        event(3, 4, kind="replay", verdict="persistent", time=START + 50 * hour),
    ]
    outcome = simulate(story, Policy(rule="strikes"))
    assert [(each.device, each.would) for each in outcome.devices] == [
        ("Ascend:3", START),
        ("Ascend:4", START + 50 * hour),
    ]
    assert [decision.action for decision in outcome.decisions] == ["isolated", "released", "isolated"]


def test_many_devices_at_exactly_the_settling_time_are_still_many():
    story = [event(1, device, time=START + 15.0 * device) for device in range(3)]
    assert simulate(story, Policy(strikes=1)).devices == []


@pytest.mark.parametrize(
    ("content", "code", "sentence"),
    [
        (None, 2, "LOG has the value '{path}', which is not valid: it must be an event log or a run folder.\n"),
        ("nothing\n", 1, "{path} has no events; valid are the lines of an event log, one CloudEvent each.\n"),
    ],
)
def test_what_is_no_log_is_named(tmp_path, capsys, content, code, sentence):
    path = tmp_path / "x.jsonl"
    if content is not None:
        path.write_text(content)
    assert main(["replay-policy", str(path)]) == code
    assert capsys.readouterr().err == "asd: " + sentence.format(path=path)


def test_an_empty_run_folder_is_named(tmp_path, capsys):
    assert main(["replay-policy", str(tmp_path)]) == 2
    assert "it must be a run folder with event logs" in capsys.readouterr().err
