"""The benchmark of detection: bad devices really strike, harm is measured, and what is counted."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks._wilson import per_million, wilson
from benchmarks.held_out import __main__ as benchmark
from benchmarks.held_out.faults import KINDS, drawn
from benchmarks.held_out.judging import COLUMNS, found, regressions, summary, table

CALLS = [("MatMul", 2048, 0), ("MatMul", 2048, 1), ("Softmax", 512, 0), ("Gather", 4, 0), ("AllReduce", 256, 0)]
WITHOUT = """
import runpy
from benchmarks.held_out import device

class Nothing:
    begin = break_down = lambda *_, **__: None
    calls, strikes = (lambda _: []), (lambda _: (0, None))

device.Device = Nothing
runpy.run_module("benchmarks.held_out.train", run_name="__main__")
"""
CORE = ("all", "tile row", "tile column", "range")
CHIP = """
from benchmarks.held_out.device import EXTENTS, VALUES, Broken, Device
device = Device()
import json, sys, mindspore as ms, numpy as np
values = np.random.default_rng(0).normal(size=(48, 64)).astype(np.float32)
whole = np.round(8 * values) * 2.0 ** np.arange(-24, 24)[:, None].astype(np.float32)
def made(kernel, x=values, eager=False):
    y = x.T if kernel == "MatMul" else x
    call = getattr(ms.ops, kernel)()
    return (call if eager else ms.jit(call))(ms.Tensor(x), ms.Tensor(y)).asnumpy()
def told(kernel, extent, value="zero", eager=False, **more):
    numbers = dict(extent=EXTENTS.index(extent), value=VALUES.index(value), chance=1.0, bytes=-1, last=9, seed=3) | more
    right = made(kernel, eager=eager)
    device.break_down(Broken(names=f" {kernel} ".encode(), **numbers))
    device.begin(1), made(kernel, values + 1, eager), device.begin(2)
    wrong = made(kernel, eager=eager)
    device.break_down()
    return np.flatnonzero(right != wrong).tolist()
answer = {name: told(*words, **more) for name, (words, more) in json.loads(sys.argv[1]).items()}
right, exact = made("MatMul"), made("MatMul", whole)
device.shake(0.5, 7)
answer["noise"] = [float(np.abs(made("MatMul") / right - 1).max()), int((made("MatMul") != made("MatMul")).sum())]
answer["exact"] = bool((made("MatMul", whole) == exact).all())
print(json.dumps(answer))
"""


def python(*words):
    environment = os.environ | benchmark.ENVIRONMENT | {"PYTHONPATH": str(benchmark.RESULTS.parents[2])}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_right_device_changes_no_bit_and_a_bad_one_changes_one_call_or_whatever_is_computed(mode, tmp_path):
    def rows(out, kinds, *program):
        plan = benchmark.Plan(7, (), 1, quick=True, folder=tmp_path)
        more = {"horizon": 40, "kinds": kinds, "done": [], "watched": False, "out": str(tmp_path / out)}
        python(*program, json.dumps(plan.spec(f"coder-{mode}-float32", **more)))
        return benchmark.lines(tmp_path / out)

    healthy, *faults = rows("with", {"single": 4}, "-m", "benchmarks.held_out.train")
    without = rows("without", {"single": 0}, "-c", WITHOUT)
    assert healthy["losses"] == without[0]["losses"]
    for row in faults:
        assert (row["strikes"], row["strike"]["changed"] > 0) == (1, True)
        assert (row["strike"]["step"], row["strike"]["kernel"]) == (healthy["first"], row["drawn"]["details"]["names"])
    assert any(row["moved"] != 0 for row in faults)


def test_a_chip_has_cores_of_which_one_is_bad_and_last_bits_that_vary_where_a_sum_is_not_exact():
    core = {"cores": 24, "core": 3, "rows": 8, "columns": 16}
    vector = {"cores": 24, "core": 23, "columns": 16, "types": 1}
    faults = {
        **{extent: (("MatMul", extent), core | {"place": 0.5, "exponent": 2}) for extent in CORE},
        "rare": (("MatMul", "rare"), core | {"period": 16}),
        "vector": (("Add", "all"), vector),
        "truth": (("Equal", "all"), vector),
        "eager": (("MatMul", "all"), {"eager": True}),
        "small": (("MatMul", "all"), {"most": 64}),
        **{
            value: (("MatMul", "quarter", value), {"place": 0.3, "stuck": 1.0}) for value in ("stale", "shifted", "one")
        },
    }
    found = json.loads(python("-c", CHIP, json.dumps(faults))[-1])
    tiles = [48 * y + x for y in range(48) for x in range(48) if y // 8 * 3 + x // 16 == 3]
    assert found["all"] == tiles
    assert found["tile row"] == [i for i in tiles if i // 48 % 8 == 4]
    assert found["tile column"] == [i for i in tiles if i % 16 == 8]
    for some in ("range", "rare"):
        assert set(found[some]) < set(tiles)
        assert found[some]
    assert found["vector"] == found["truth"] == list(range(23 * 128, 24 * 128))
    assert found["eager"] == list(range(48 * 48))
    assert found["small"] == []
    assert found["stale"] == found["shifted"] == found["one"] == list(range(576, 1152))
    assert found["exact"]
    assert 0 < found["noise"][0] < 2**-22
    assert found["noise"][1] > 500


@pytest.mark.slow
def test_harm_is_measured_by_a_twin_and_what_was_run_is_not_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "DRAWN", {"lasting": 4, "memory": 2})
    plan = benchmark.Plan(7, ("lasting", "memory"), 1, quick=True, folder=tmp_path)
    training = "coder-graph-float32"
    healthy, control, *faults = benchmark.harm(plan, training)
    assert len(healthy["losses"]) == healthy["first"] - 1 + 200
    assert (control["fault"], control["strikes"], control["harmful"]) == ("control 0", 1, False)
    assert all(row["strike"]["step"] == healthy["first"] for row in faults if row["strikes"])
    for row in faults:
        assert row["harmful"] == (row["loss"] is None or row["loss"] > 0.01 or row["moved"] > 0.05)
    assert any(row["harmful"] for row in faults)
    path = tmp_path / f"{training}.jsonl"
    before = path.read_text().splitlines()
    path.write_text("\n".join([*before[:-2], before[-2][:40]]))  # as a process leaves it that was killed
    again = benchmark.harm(plan, training)
    assert sorted(map(json.dumps, again)) == sorted(map(json.dumps, [healthy, control, *faults]))


@pytest.mark.parametrize("kind", KINDS)
def test_faults_follow_from_the_number_and_one_call_is_one_that_the_training_makes(kind):
    faults, again, others = (list(drawn(kind, 30, 44, CALLS, number, "a-graph-float32", 2)) for number in (1, 1, 2))
    assert faults == again != others
    assert {fault.rank for fault in faults} == ({-1} if kind == "link" else {0, 1})
    for fault in faults:
        assert (fault.details["first"], 0 < fault.details["chance"] <= 1) == (44, True)
        if kind in {"single", "place", "link", "gate"}:
            assert (fault.details["names"], fault.details["bytes"], fault.details["call"]) in CALLS
        assert (kind == "gate") == (fault.second is not None)
    assert "gather" not in {fault.where for fault in faults}  # nothing but a single number
    assert (kind in {"range", "values"}) == all(fault.what.startswith("range") for fault in faults)


def event(step, *, level="first", refused=True, device="CPU:0"):
    return {"level": level, "step": step, "refused": refused, "device": device}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([], (0, None, False, False, False, False)),
        ([event(44)], (0, 0, True, True, True, False)),
        ([event(44, refused=False)], (0, 0, False, True, True, True)),
        ([event(44, level="second"), event(70)], (0, 26, False, False, True, False)),
        ([event(20), event(45)], (1, 1, False, True, True, False)),
        ([event(300)], (0, 256, False, False, False, False)),
    ],
)
def test_a_fault_is_found_by_the_first_first_level_event_from_its_step_on(told, expected):
    answer = found(told, 44, "CPU:0")
    columns = ("alarms_too_early", "steps", "own", "in_20", "in_200", "not_refused")
    assert tuple(answer[each] for each in columns) == expected


def test_an_alarm_without_a_wrong_result_is_too_early_and_another_device_is_wrong_unless_it_is_nobody():
    assert found([event(50)], None, "CPU:0")["alarms_too_early"] == 1
    for bad, named, wrong in (("CPU:0", True, ["CPU:1"]), ("", False, ["CPU:0", "CPU:1"])):
        answer = found([event(50, device="CPU:1"), event(51), event(52, device="unknown")], 50, bad)
        assert (answer["named"], answer["named_wrongly"]) == (named, wrong)


@pytest.mark.parametrize(
    ("found", "of", "low", "high"),
    [(41, 41, 0.9143, 1.0), (27, 27, 0.8754, 1.0), (4, 645, 0.0024, 0.0158), (0, 149, 0.0, 0.0251)],
)
def test_the_wilson_interval_has_its_published_values(found, of, low, high):
    assert wilson(found, of) == pytest.approx((low, high), abs=5e-5)


def test_no_alarm_in_three_million_checks_means_at_most_one_in_a_million():
    assert per_million(0, 3_000_000) == (0.0, 1.0)


def row(kind, *, hit, early=0):
    found = dict.fromkeys(("own", "in_20", "in_200"), hit)
    return found | {
        "mode": "graph",
        "kind": kind,
        "strikes": 1,
        "harmful": True,
        "alarms_too_early": early,
        "steps": None,
    }


def test_what_got_worse_is_named_and_what_so_few_faults_can_not_tell_is_not():
    quiet = {"training": "a-graph-float32", "steps": 100, "checks": 2000, "alarms": 0, "equal": True}
    before = summary([row("lasting", hit=True) for _ in range(12)], [quiet])
    words = "graph lasting 12 of 12 12" + 3 * " 12 of 12 (76% to 100%)" + " 0 0"
    assert table(before).splitlines()[1].split() == words.split()
    assert regressions(before, before) == []
    assert regressions(summary([row("lasting", hit=False), row("lasting", hit=True)], [quiet]), before) == []
    worse = summary([row("lasting", hit=False, early=1) for _ in range(12)], [quiet | {"alarms": 2, "equal": False}])
    assert len(regressions(worse, before)) == len(COLUMNS) + 2


def test_parts_are_summed_each_with_its_commit_and_nothing_counts_twice(tmp_path):
    def part(number, commit):
        one = row("core", hit=number == 1) | {
            "training": "a-graph-float32",
            "fault": "core 0",
            "number": number,
            "ranks": 2,
        }
        told = benchmark.summed([one | {"loss": None}], []) | {"command": "", "commit": commit}
        (tmp_path / commit).write_text(json.dumps(told))
        return tmp_path / commit

    parts = [part(1, "aaa"), part(2, "bbb")]
    whole = benchmark.merged(parts)
    assert [each["commit"] for each in whole["parts"]] == ["aaa", "bbb"]
    assert [(name, group["run"], group["own"]["found"]) for name, group in whole["groups"].items()] == [
        ("graph core, 2 ranks", 2, 1)
    ]
    with pytest.raises(SystemExit):
        benchmark.merged([*parts, parts[0]])


def test_single_faults_count_by_what_suffers_and_those_that_come_and_go_by_their_wrong_results():
    once = [row("single", hit=hit) | {"loss": loss} for hit, loss in ((True, None), (False, 0.02), (False, -1.0))]
    often = [row("intermittent", hit=False) | {"in_many": True}, row("intermittent", hit=False)]  # one was seldom wrong
    found = summary([*once, *often], [])["aims"]
    assert {name: (aim["found"], aim["of"]) for name, aim in found.items()} == {
        "graph single, own step, where the loss suffers": (1, 2),
        "graph single, own step, where only weights do": (0, 1),
        "graph intermittent, within 500 wrong results": (1, 1),
    }
