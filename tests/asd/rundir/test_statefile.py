"""The state of the rules: taken over whole or not at all, in memory and on disk."""

import contextlib
import math
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd import Config, StateError
from asd.judge.monitor import Monitor
from asd.origin import Origin
from asd.rules import RULES
from asd.rules.reading import Reading
from asd.rundir.disk import write_whole
from asd.rundir.statefile import load_state, save_state

NAMES = ("model.norm_out", "模型.\x1b.layers\n.0")


def monitor(rule="threshold", action="stop"):
    config = Config(protection="document", enable=1, rule=rule, on_anomaly=action)
    return Monitor(config, Origin("run", 0, "host", "CPU:0"), clock=lambda: 0.0)


def feed(watch, values, first=1):
    """Everything that the monitor says about the values, as text, in which nan equals nan."""
    outcomes = []
    for step, value in enumerate(values, first):
        outcomes.append(watch.judge(step, [Reading(name, value * k, k) for k, name in enumerate(NAMES, 1)]))
    return repr(outcomes)


VALUES = st.lists(st.floats(0.5, 2.0) | st.sampled_from([0.0, 1e9, math.inf, math.nan, 1e5]), max_size=30)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("action", ["log", "stop"])
@given(before=VALUES, after=VALUES)
def test_a_monitor_restored_from_disk_goes_on_as_if_it_had_never_stopped(tmp_path_factory, rule, action, before, after):
    never_stopped, stopped, resumed = (monitor(rule, action) for _ in range(3))
    assert feed(never_stopped, before) == feed(stopped, before)
    path = tmp_path_factory.getbasetemp() / "state.json"
    save_state(path, stopped.state())
    resumed.restore(load_state(path), NAMES)
    assert resumed.step == len(before)
    assert [resumed.judges.limit(name) for name in NAMES] == [never_stopped.judges.limit(name) for name in NAMES]
    assert feed(resumed, after, len(before) + 1) == feed(never_stopped, after, len(before) + 1)
    assert repr(resumed.state()) == repr(never_stopped.state())


GOOD = {"rule": "threshold", "step": 5, "checkpoints": {"a": {"pre": 1.0, "min": 1.0, "max": 1.0, "count": 5}}}


@pytest.mark.parametrize(
    ("state", "known", "named"),
    [
        (GOOD | {"rule": "adaptive"}, (), "rule 'adaptive'"),
        ({}, (), "rule None"),
        ({"rule": "threshold"}, (), r"\['rule'\]"),
        (GOOD | {"step": "5"}, (), "step"),
        (GOOD | {"checkpoints": []}, (), "checkpoints"),
        (GOOD, ("x", "y", "z", "w", "v"), "v, w, x and 2 more"),
        (GOOD | {"checkpoints": GOOD["checkpoints"] | {"b": {"pre": 1.0}}}, (), "checkpoint b .* pre"),
        (GOOD | {"checkpoints": {"b": None}}, (), "checkpoint b "),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(state, known, named):
    watch = monitor()
    feed(watch, [1.0, 2.0])
    before = repr(watch.state())
    with pytest.raises(StateError, match=named):
        watch.restore(state, known)
    assert repr(watch.state()) == before


def test_checkpoints_that_were_added_since_start_anew_and_others_go_on():
    watch = monitor()
    watch.restore(GOOD, ["a", "new"])
    assert watch.state() == GOOD


@given(data=st.binary(max_size=60), cut=st.integers(0, 400))
def test_no_damage_causes_another_error(tmp_path_factory, data, cut):
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    save_state(path, GOOD)
    whole = path.read_bytes()
    path.write_bytes(whole[:cut] + data + whole[cut + len(data) :])
    with contextlib.suppress(StateError):
        monitor().restore(load_state(path), ["a"])


def test_the_file_and_its_folder_are_synced(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    write_whole(tmp_path / "s.json", "text")
    assert synced[0].startswith(str(tmp_path / ".s.json."))
    assert synced[1:] == [str(tmp_path)]
