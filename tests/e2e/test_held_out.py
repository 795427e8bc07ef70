"""The benchmark of detection: bad devices really strike, harm is measured, and what is counted."""

import pytest

from benchmarks._wilson import per_million, wilson
from benchmarks.held_out.faults import KINDS, drawn
from benchmarks.held_out.judging import COLUMNS, found, regressions, summary, table

CALLS = [("MatMul", 2048, 0), ("MatMul", 2048, 1), ("Softmax", 512, 0), ("Gather", 4, 0), ("Adam", 256, 0)]


@pytest.mark.parametrize("kind", KINDS)
def test_faults_follow_from_the_number_and_one_call_is_one_that_the_training_makes(kind):
    faults, again, others = (list(drawn(kind, 30, 44, CALLS, number, "a-graph-float32")) for number in (1, 1, 2))
    assert faults == again != others
    for fault in faults:
        assert (fault.details["first"], 0 < fault.details["chance"] <= 1) == (44, True)
        if kind == "single":
            assert (fault.details["names"], fault.details["bytes"], fault.details["call"]) in CALLS
    assert "gather" not in {fault.where for fault in faults}  # nothing but a single number
    assert (kind == "range") == all(fault.what.startswith("range") for fault in faults)


def event(step, *, level="first", refused=True, device="CPU:0"):
    return {"level": level, "step": step, "refused": refused, "device": device}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([], (0, None, False, False, False)),
        ([event(44)], (0, 0, True, True, True)),
        ([event(44, refused=False)], (0, 0, False, True, True)),
        ([event(44, level="second"), event(70)], (0, 26, False, False, True)),
        ([event(20), event(45)], (1, 1, False, True, True)),
        ([event(300)], (0, 256, False, False, False)),
    ],
)
def test_a_fault_is_found_by_the_first_first_level_event_from_its_step_on(told, expected):
    answer = found(told, 44, "CPU:0")
    assert tuple(answer[each] for each in ("alarms_too_early", "steps", "own", "in_20", "in_200")) == expected


def test_an_alarm_without_a_wrong_result_is_too_early_and_another_device_is_wrong():
    assert found([event(50)], None, "CPU:0")["alarms_too_early"] == 1
    assert found([event(50, device="CPU:1"), event(51)], 50, "CPU:0")["named_wrongly"] == ["CPU:1"]


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
    return found | {"mode": "graph", "kind": kind, "strikes": 1, "harmful": True, "alarms_too_early": early}


def test_what_got_worse_is_named_and_what_so_few_faults_can_not_tell_is_not():
    quiet = {"training": "a-graph-float32", "steps": 100, "checks": 2000, "alarms": 0, "equal": True}
    before = summary([row("lasting", hit=True) for _ in range(12)], [quiet])
    assert (
        table(before).splitlines()[1].split() == ("graph lasting 12 of 12 12" + 3 * " 12 of 12 (76% to 100%)").split()
    )
    assert regressions(before, before) == []
    assert regressions(summary([row("lasting", hit=False), row("lasting", hit=True)], [quiet]), before) == []
    worse = summary([row("lasting", hit=False, early=1) for _ in range(12)], [quiet | {"alarms": 2, "equal": False}])
    assert regressions(worse, before) == [
        *(f"graph lasting, {words}: 0 of 12 are found; at least 76% were." for words in COLUMNS.values()),
        "14 first-level alarms without a fault; valid is none.",
        "a-graph-float32 has other losses with detection.",
    ]


def test_single_faults_count_by_what_suffers_and_those_that_come_and_go_by_their_wrong_results():
    once = [row("single", hit=hit) | {"loss": loss} for hit, loss in ((True, None), (False, 0.02), (False, -1.0))]
    often = [row("intermittent", hit=False) | {"in_many": True}, row("intermittent", hit=False)]  # one was seldom wrong
    found = summary([*once, *often], [])["aims"]
    assert {name: (aim["found"], aim["of"]) for name, aim in found.items()} == {
        "graph single, own step, where the loss suffers": (1, 2),
        "graph single, own step, where only weights do": (0, 1),
        "graph intermittent, within 500 wrong results": (1, 1),
    }
