"""The benchmark of detection: bad devices really strike, harm is measured, and what is counted."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks._wilson import per_million, wilson
from benchmarks.held_out import __main__ as benchmark
from benchmarks.held_out.faults import KINDS, drawn
from benchmarks.held_out.judging import found, regressions, summary, table

CALLS = [("MatMul", 2048, 0), ("MatMul", 2048, 1), ("Softmax", 512, 0), ("Gather", 4, 0), ("AllReduce", 256, 0)]
CHIP = """
from benchmarks.held_out.device import Device, broken
device = Device()
import json, sys, mindspore as ms, numpy as np
values = np.random.default_rng(0).normal(size=(48, 64)).astype(np.float32)
whole = np.round(8 * values) * 2.0 ** np.arange(-24, 24)[:, None].astype(np.float32)
def made(kernel, x=values, eager=False):
    y = x.T if kernel == "MatMul" else x
    call = getattr(ms.ops, kernel)()
    return (call if eager else ms.jit(call))(ms.Tensor(x), ms.Tensor(y)).asnumpy()
def told(kernel, extent, value="zero", eager=False, **more):
    right = made(kernel, eager=eager)
    device.break_down(broken(kernel, extent, value, **more))
    device.begin(1), made(kernel, values + 1, eager), device.begin(2)
    return np.flatnonzero(right != (made(kernel, eager=eager), device.break_down())[0]).tolist()
answer = {name: told(*words, **more) for name, (words, more) in json.loads(sys.argv[1]).items()}
right, exact = made("MatMul"), made("MatMul", whole)
device.shake(0.5, 7)
answer["noise"] = [float(np.abs(made("MatMul") / right - 1).max()), int((made("MatMul") != made("MatMul")).sum())]
print(json.dumps(answer | {"exact": bool((made("MatMul", whole) == exact).all())}))
"""


def test_a_chip_has_cores_of_which_one_is_bad_and_last_bits_that_vary_where_a_sum_is_not_exact():
    core = {"cores": 24, "core": 3, "rows": 8, "columns": 16, "place": 0.5, "exponent": 2, "period": 16}
    vector = {"cores": 24, "core": 23, "columns": 16, "types": 1}
    quarter = {"place": 0.3, "stuck": 1.0}
    faults = {extent: (("MatMul", extent), core) for extent in ("all", "tile row", "tile column", "range", "rare")}
    faults |= {"vector": (("Add", "all"), vector), "truth": (("Equal", "all"), vector)}
    faults |= {"eager": (("MatMul", "all"), {"eager": True}), "small": (("MatMul", "all"), {"most": 64})}
    faults |= {value: (("MatMul", "quarter", value), quarter) for value in ("stale", "shifted", "one")}
    environment = os.environ | benchmark.ENVIRONMENT | {"PYTHONPATH": str(benchmark.RESULTS.parents[2])}
    printed = subprocess.check_output([sys.executable, "-c", CHIP, json.dumps(faults)], env=environment)
    found = json.loads(printed.splitlines()[-1])
    tiles = [48 * y + x for y in range(48) for x in range(48) if y // 8 * 3 + x // 16 == 3]
    run, quarter = list(range(23 * 128, 24 * 128)), list(range(576, 1152))
    lanes = {"tile row": [i for i in tiles if i // 48 % 8 == 4], "tile column": [i for i in tiles if i % 16 == 8]}
    known = {"all": tiles, **lanes, "vector": run, "truth": run, "eager": list(range(48 * 48)), "small": []}
    known |= dict.fromkeys(("stale", "shifted", "one"), quarter)
    assert {name: found[name] for name in known} == known
    assert all(found[some] and set(found[some]) < set(tiles) for some in ("range", "rare"))
    assert (found["exact"], 0 < found["noise"][0] < 2**-22, found["noise"][1] > 500) == (True, True, True)


@pytest.mark.parametrize("kind", KINDS)
def test_faults_follow_from_the_number_and_one_call_is_one_that_the_training_makes(kind):
    faults, again, others = (list(drawn(kind, 30, 44, CALLS, number, "a-graph-float32", 2)) for number in (1, 1, 2))
    assert faults == again != others
    assert {fault.rank for fault in faults} == ({-1} if kind == "link" else {0, 1})
    for fault in faults:
        assert (fault.details["first"], 0 < fault.details["chance"] <= 1) == (44, True)
        place = tuple(fault.details.get(each) for each in ("names", "bytes", "call"))
        assert (place in CALLS, fault.second is not None) == (
            kind in {"single", "place", "link", "gate"},
            kind == "gate",
        )
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


def test_intervals_have_their_published_values():
    known = {(41, 41): (0.9143, 1), (27, 27): (0.8754, 1), (4, 645): (0.0024, 0.0158), (0, 149): (0, 0.0251)}
    for share, bounds in known.items():
        assert wilson(*share) == pytest.approx(bounds, abs=5e-5)
    assert per_million(0, 3_000_000) == (0.0, 1.0)  # none in three million: at most one in a million


def row(kind, *, hit, **more):
    found = dict.fromkeys(("own", "in_20", "in_200", "named"), hit) | {"mode": "graph", "kind": kind, "number": 7}
    found |= {"training": "a", "fault": kind, "drawn": {"what": ""}, "steps": 7 if hit else None, "not_refused": False}
    return found | {"strikes": 1, "harmful": True} | more


QUIET = {"training": "a-graph-float32", "steps": 100, "checks": 2000, "alarms": 0, "equal": True}


@pytest.mark.parametrize("lost", ["own", "in_20", "in_200", "named", "steps"])
def test_a_fault_that_was_found_and_is_not_is_a_regression_but_for_its_step_where_last_bits_vary(lost):
    for noise, wrong in ((0, 1), (0.2, lost == "in_200")):
        one = row("lasting", hit=True, noise=noise)
        less = one | {lost: row("lasting", hit=False)[lost]}
        before, now = (benchmark.summed([each], [QUIET]) for each in (one, less))
        assert (len(regressions(before, before)), len(regressions(now, before))) == (0, wrong)


def test_faults_with_nothing_to_compare_with_and_what_a_healthy_training_forbids_are_regressions():
    one, noisy = row("lasting", hit=True), QUIET | {"alarms": 2, "equal": False}
    before = benchmark.summed([one], [QUIET])
    assert table(before).splitlines()[1].split()[-8:] == ["1", "of", "1", "(21%", "to", "100%)", "0", "1"]
    now = [([one | {"drawn": {}}, row("core", hit=True)], QUIET), ([], QUIET), ([one | {"alarms_too_early": 1}], noisy)]
    assert [len(regressions(benchmark.summed(rows, [healthy]), before)) for rows, healthy in now] == [2, 1, 2]


def test_an_alarm_before_the_fault_counts_where_it_ends_the_training_and_so_does_a_healthy_one_that_dies(monkeypatch):
    told = {"code": 1, "events": [event(40)], "checks": 9, "step": 40, "strike": None, "strikes": 0}
    monkeypatch.setattr(benchmark, "watched", lambda *_: dict(told))
    plan = benchmark.Plan(7, ("single",), 8, quick=False, folder=None)
    fault = row("single", hit=False, strike={"step": 70, "before": 5}, drawn={"rank": 0})
    assert benchmark.one_case(plan, "a-graph-float32", fault)["alarms_too_early"] == 1
    for code, steps, whole in ((0, 269, True), (1, 269, False), (0, 268, False)):
        told |= {"code": code, "losses": [1.0] * steps}
        found = benchmark.one_healthy(plan, "a-graph-float32", {"first": 70, "losses": [1.0] * 109})
        assert found["equal"] is whole


def test_parts_are_summed_each_with_its_commit_and_nothing_counts_twice(tmp_path):
    parts = [tmp_path / commit for commit in ("aaa", "bbb")]
    for number, path in enumerate(parts):
        one = row("core", hit=bool(number), number=number, ranks=2)
        path.write_text(json.dumps(benchmark.summed([one], []) | {"commit": path.name}))
    whole = benchmark.merged(parts)
    assert [each["commit"] for each in whole["parts"]] == ["aaa", "bbb"]
    assert (whole["groups"]["graph core, 2 ranks"]["own"]["found"], len(whole["rows"])) == (1, 2)
    with pytest.raises(SystemExit):
        benchmark.merged([*parts, parts[0]])
    (tmp_path / "sum").write_text(json.dumps(whole))
    with pytest.raises(SystemExit):
        benchmark.options_of(["--json", str(tmp_path / "sum")])


def test_single_faults_count_by_what_suffers_and_those_that_come_and_go_by_their_wrong_results():
    once = [row("single", hit=hit) | {"loss": loss} for hit, loss in ((True, None), (False, 0.02), (False, -1.0))]
    often = [row("intermittent", hit=hit) for hit in (True, False)]
    found = summary([*once, *often], [])["aims"]
    assert {name: (aim["found"], aim["of"]) for name, aim in found.items()} == {
        "graph single, own step, where the loss suffers": (1, 2),
        "graph single, own step, where only weights do": (0, 1),
        "graph intermittent, within 500 wrong results or 3,000 steps": (1, 2),
    }
