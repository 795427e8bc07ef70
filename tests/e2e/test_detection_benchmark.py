import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.detection import measure
from benchmarks.detection.alarm import Setup
from benchmarks.detection.detectors import DETECTORS
from benchmarks.detection.faults import PATTERNS, Fault, corrupt, round_to_bfloat16
from benchmarks.detection.plan import HORIZON, SPLITS, draw_faults, make_plan
from benchmarks.detection.report import make_report, print_report, write_report
from benchmarks.detection.schedule import Record
from benchmarks.detection.score import score_unit
from benchmarks.detection.targets import regressions
from benchmarks.detection.wilson import per_million, wilson

ROOT = Path(__file__).parents[2]
STEPS = 60
PLACES = [
    {"name": "a.Y", "operator": "a", "kind": "Y"},
    {"name": "a.W", "operator": "a", "kind": "W"},
    {"name": "n.G", "operator": "n", "kind": "G"},
]


@pytest.mark.parametrize(
    ("found", "of", "low", "high"),
    [(41, 41, 0.9143, 1.0), (27, 27, 0.8754, 1.0), (4, 645, 0.0024, 0.0158), (0, 149, 0.0, 0.0251)],
)
def test_the_wilson_interval_has_its_published_values(found, of, low, high):
    assert wilson(found, of) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 10_000), st.data())
def test_the_interval_holds_the_proportion_and_mirrors(of, data):
    found = data.draw(st.integers(0, of))
    low, high = wilson(found, of)
    assert 0 <= low <= found / of <= high <= 1
    assert wilson(of - found, of) == pytest.approx((1 - high, 1 - low))


def test_no_alarm_in_three_million_checks_means_at_most_one_in_a_million():
    assert per_million(0, 3_000_000) == (0.0, 1.0)


def a_fault(pattern, seed=0, **changes):
    return Fault(
        **{"target": "site", "place": 1, "rank": 0, "pattern": pattern, "start": 30, "duration": 1, "seed": seed}
        | changes
    )


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_leaves_its_argument_alone_and_does_the_same_twice(pattern):
    value = np.random.default_rng(0).standard_normal((40, 48)).astype(np.float32)
    before = value.copy()
    once, twice = (corrupt(value, a_fault(pattern, seed=3), rounded=False) for _ in range(2))
    assert np.array_equal(value, before)
    assert once.tobytes() == twice.tobytes()


def test_a_stuck_bit_that_is_so_already_changes_nothing():
    outcomes = {
        corrupt(np.zeros((4, 4), np.float32), a_fault("stuck bit", seed), rounded=False).any() for seed in range(20)
    }
    assert outcomes == {True, False}


def test_rounding_to_bfloat16_is_to_nearest_even():
    value = np.float32([1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, np.inf, -3.0])
    assert round_to_bfloat16(value).tolist() == [1.0, 1.0, 1 + 2**-6, 1 + 2**-7, np.inf, -3.0]
    assert np.isnan(round_to_bfloat16(np.float32([np.nan]))).all()


def test_development_and_evaluation_share_no_network_seed_or_schedule():
    development, evaluation = make_plan("development"), make_plan("evaluation")
    for of in ("family", "seed", "schedule"):
        assert not {getattr(unit, of) for unit in development} & {getattr(unit, of) for unit in evaluation}
    assert set(SPLITS["evaluation"].patterns) - set(SPLITS["development"].patterns)


def test_the_evaluation_injects_enough_and_no_two_trainings_share_a_name():
    plan = make_plan("evaluation")
    assert sum(len(unit.strikes) * unit.faults for unit in plan) >= 3400
    assert len({unit.name for unit in plan}) == len(plan)
    assert {unit.schedule.event for unit in plan if unit.control} == set(SPLITS["evaluation"].controls)
    assert make_plan("evaluation") == plan
    assert {unit.seed for unit in make_plan("evaluation", 1)}.isdisjoint(unit.seed for unit in plan)


def test_faults_are_drawn_from_the_seed_and_end_before_the_run_does():
    unit = make_plan("evaluation")[0]
    faults = draw_faults(unit, places=40, weights=20)
    assert faults == draw_faults(unit, places=40, weights=20)
    assert all(fault.start + HORIZON <= unit.schedule.steps for _, fault in faults)
    bits = sum(fault.pattern == "bit" for _, fault in faults) / len(faults)
    assert bits < 0.4


def records(count, random, spoiled=None):
    for step in range(count):
        noise = 1 + 0.1 * random.standard_normal((1, len(PLACES), 1))
        seen = (np.float32([[[4.0, 20.0, 1.0, 0.0]]]) * noise).astype(np.float32)
        seen[..., 3] = 0
        if spoiled is not None and step == 0:
            seen[0, spoiled[0], :3] *= spoiled[1]
            seen[0, spoiled[0], 3] = spoiled[2]
        bounds = np.float32([[1.0, 1.0, 1.0, 0.0]])
        blocks = np.int32([[[0, 1]] * 3])
        loss, norm = 2.0 + 0.01 * random.random(), 1.0 + 0.1 * random.random()
        yield Record(seen, loss, norm, 0, bounds, -1, blocks, seen[0, 1:2])


def write_trace(path, branches, clean=None, differing=()):
    random = np.random.default_rng(5)
    clean = clean or list(records(STEPS, random))
    spoiled = [list(records(1, random, spoil)) if spoil else [] for _, spoil in branches]
    note = {"no_op": False, "change": 1.0, "followed": True, "harm": 1.0, "excess": 1.0, "harmful": True}
    faults = [{"phase": "peak", **fault.data(), **(note if spoil else {"no_op": True})} for fault, spoil in branches]
    unit = make_plan("tiny")[0].data()
    meta = {
        "unit": unit, "places": PLACES, "sizes": [1, 1, 1], "weights": ["a.weight"],
        "replayed": {"start": 30, "steps": 20, "differing": list(differing)}, "cpu_seconds": 1.0,
        "faults": faults, "lengths": [len(branch) for branch in spoiled], "checksums": {"products": 0},
    }  # fmt: skip
    flat = [record for branch in spoiled for record in branch]
    arrays = {}
    for prefix, rows in (("clean", clean), ("branch", flat)):
        arrays |= {f"{prefix}_{key}": np.array([getattr(row, key) for row in rows]) for key in Record._fields}
    np.savez(path, meta=np.array(json.dumps(meta)), **arrays)


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    path = tmp_path_factory.mktemp("traces") / "unit.npz"
    nan, large, small = (1, 1.0, 2), (2, 1e5, 0), (1, 1.3, 0)
    faults = [a_fault("not finite"), a_fault("tile", place=2), a_fault("noise"), a_fault("stuck bit")]
    write_trace(path, list(zip(faults, [nan, large, small, None], strict=True)))
    return score_unit(path)


def test_each_detector_finds_what_its_rule_can_see(scored):
    nan, large, small, _ = (fault["found"] for fault in scored["faults"])
    assert nan["NaN only"]["error"] == 0
    assert nan["NaN only"]["matched"]
    assert large["NaN only"]["error"] == -1
    assert large["Ascend V3"] | {"cause": ""} == {
        "error": 0, "warning": -1, "rank": 0, "place": 2, "cause": "", "matched": True,
    }  # fmt: skip
    assert large["asd adaptive"]["error"] == 0
    assert large["combined, every gradient"]["error"] == -1  # it does not look at this site
    assert {name for name, found in small.items() if found["error"] >= 0} == set()


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_fault_in_the_mean_alone_is_found_and_names_a_rank_only_where_there_is_one(ranks):
    sites = DETECTORS["asd finite+adaptive+ranks"](Setup(["a.Y", "a.W"], ["Y", "W"], ranks, [1, -1]))
    random = np.random.default_rng(2)
    for step in range(30):
        sizes = np.float32([4.0, 20.0, 1.0, 0.0]) * np.float32(1 + 0.1 * random.random())
        seen, averaged = np.tile(sizes, (ranks, 2, 1)), np.tile(sizes, (2, 1))
        if step == 29:
            averaged *= np.float32([[1e6], [1e7]])
        alarm = sites.step(step, Record(seen, 1.0, 1.0, 0, seen, -1, seen, averaged))
        assert (alarm.errors == []) is (step < 29)
    # Of one rank the first is what its site computed, the second has no site.
    assert alarm.errors == ([(0, 1), (0, 3)] if ranks == 1 else [(-1, 2), (-1, 3)])
    assert (alarm.suspect, alarm.cause) == ((0, "unknown") if ranks == 1 else (-1, "unknown"))


@pytest.mark.parametrize(("comes_again", "errors"), [(False, [(0, 1)]), (True, [])])
def test_a_second_look_finds_what_is_suspicious_and_does_not_come_again(comes_again, errors):
    setup = Setup(["a.Y", "a.B"], ["Y", "B"], 1, [])
    detector, plain = DETECTORS["asd second look"](setup), DETECTORS["asd finite+adaptive+ranks"](setup)
    random = np.random.default_rng(2)
    for step in range(30):
        sizes = np.float32([4.0, 20.0, 1.0, 0.0]) * np.float32(1 + 0.1 * random.random())
        clean = Record(np.tile(sizes, (1, 2, 1)), 1.0, 1.0, 0, sizes, -1, sizes, sizes[None][:0])
        record = clean._replace(features=clean.features.copy())
        if step == 29:
            record.features[0, 1, :3] *= 100
        alarm, other = detector.step(step, record, record if comes_again else clean), plain.step(step, record)
        assert (other.errors, other.suspicious) == ([], [(0, 1)] if step == 29 else [])
    assert alarm.errors == errors
    assert (alarm.suspect, alarm.place, alarm.cause) == ((0, 1, "hardware") if errors else (-1, -1, ""))
    assert detector.made_again == 1


def test_clean_checks_are_counted_and_no_detector_flags_them(scored):
    later = STEPS - 20
    assert scored["checks"] == {
        "warm_up": 20 * len(PLACES), "later": later * len(PLACES), "later_by_kind": dict.fromkeys("YWG", later)
    }  # fmt: skip
    assert all(counts["errors_later"] == 0 for counts in scored["alarms"].values())


def test_every_stratum_has_every_column_for_every_detector(scored):
    report = make_report([scored], "tiny", 0, missing=0)
    faults = {"pattern noise": (0, 1), "pattern tile": (1, 1), "duration 1": (2, 3), "float32, W": (1, 2)}
    for stratum, (found, of) in faults.items():
        line = report["strata"][stratum]["asd adaptive"]
        assert (line["single"]["0"]["found"], line["single"]["0"]["of"]) == (found, of)
        assert set(line["single"]) == {"0", "1", "5", "20", "own"}
        assert set(line["named"]) == {"rank", "layer", "operator"}
    tile = report["strata"]["pattern tile"]["asd adaptive"]
    assert tile["named"]["operator"]["share"] == 1
    assert sum(tile["told"]["faults"].values()) == 1
    ranks = report["strata"]["ranks 1"]
    assert set(ranks) == set(report["detectors"])
    assert ranks["NaN only"]["microseconds_a_check"] > 0
    assert ranks["NaN only"]["false_alarms"]["checks"] == STEPS * len(PLACES)


def test_an_alarm_of_a_clean_run_isolates_only_if_the_replay_of_its_step_differs(tmp_path):
    random = np.random.default_rng(5)
    write_trace(tmp_path / "same.npz", [], clean=[*records(35, random), *records(25, random, (2, 1e5, 0))])
    write_trace(
        tmp_path / "other.npz", [], clean=[*records(35, random), *records(25, random, (2, 1e5, 0))], differing=[35]
    )
    for name, isolations in (("same", 0), ("other", 1)):
        counts = score_unit(tmp_path / f"{name}.npz")["alarms"]["asd adaptive"]
        assert (counts["steps"], counts["steps_replayed"], counts["isolations"]) == (1, 1, isolations)
        assert sum(counts["causes"].values()) == 1


def test_a_fault_that_changed_nothing_is_counted_and_left_out(scored, tmp_path, capsys):
    report = make_report([scored], "tiny", 0, missing=0)
    assert (report["injections"], report["no_ops_removed"], report["harmful"]) == (4, 1, 3)
    assert report["detectors"]["NaN only"]["single"]["own_steps"] == {
        "found": 1, "of": 3, "share": pytest.approx(1 / 3, abs=1e-4), "low": pytest.approx(0.0615, abs=1e-4),
        "high": pytest.approx(0.7923, abs=1e-4),
    }  # fmt: skip
    write_report(report, tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text())["no_ops_removed"] == 1
    print_report(report)
    assert "MISSED injections that changed something: 3 (>= 3000)" in capsys.readouterr().out


def test_what_broke_is_told_in_a_sentence_each_and_nothing_else_is(scored):
    report = make_report([scored], "tiny", 0, missing=0)
    adaptive, checked = (report["detectors"][name] for name in ("asd adaptive", "asd adaptive + checksum"))
    adaptive["single"]["own_steps"] = {"found": 85, "of": 100, "share": 0.85}
    checked["single"]["own_steps"] = {"found": 95, "of": 100, "share": 0.95}
    assert regressions(report) == []
    adaptive["single"]["own_steps"] = {"found": 84, "of": 100, "share": 0.84}
    checked["single"]["own_steps"] = {"found": 94, "of": 100, "share": 0.94}
    adaptive["false_alarms"]["normal_runs"] = 2
    report["controls"]["resume"] = {"isolations": 1}
    report["clean_branches_bit_identical"] = False
    assert regressions(report) == [
        "asd adaptive found 84 of 100 harmful single events; valid is 85%.",
        "asd adaptive + checksum found 94 of 100 harmful single events; valid is 95%.",
        "2 first-level alarms in trainings without fault and event; valid is none.",
        "1 isolations in trainings without a fault; valid is none.",
        "a step made again without a fault had other bits; all of them must be the same.",
    ]


def test_the_command_says_in_a_sentence_that_there_is_nothing_to_score(tmp_path):
    command = [sys.executable, "-m", "benchmarks.detection", "--score-only", "--work", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.count("\n")) == (1, 1)
    assert "run without --score-only first" in done.stdout


def without_cost(report):
    """The report without times, which differ from run to run."""
    if isinstance(report, dict):
        return {key: without_cost(value) for key, value in report.items() if key != "microseconds_a_check"}
    return report


@pytest.mark.slow
def test_a_tiny_benchmark_trains_injects_scores_and_goes_on_where_it_was(tmp_path):
    result = tmp_path / "out.json"
    command = [
        sys.executable, "-m", "benchmarks.detection", "--split", "tiny", "--workers", "1", "--work", str(tmp_path),
        "--json", str(result),
    ]  # fmt: skip
    env = {**os.environ, "GLOG_v": "3"}
    subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=3000, check=True)
    report = json.loads(result.read_text())
    assert report["clean_branches_bit_identical"] is True
    assert report["injections"] == sum(len(unit.strikes) * unit.faults for unit in make_plan("tiny"))
    assert report["trainings_missing"] == 0
    again = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=True)
    assert f"{report['trainings']} of {report['trainings']} trainings are there already" in again.stderr
    assert without_cost(json.loads(result.read_text())) == without_cost(report)


@pytest.mark.parametrize(
    ("fault", "seen", "found"),
    [
        ({"start": 5}, {}, 0),  # in the first steps of a process each product is checked
        ({"start": 90, "event": "resume"}, {}, 0),
        ({"start": 90}, {}, 6),  # of sixteen steps one is its turn: 96
        ({"start": 90, "duration": 6}, {}, -1),
        ({"start": 90}, {"warning": 2}, 3),
        ({"start": 90}, {"again": 1}, 1),
        ({"start": 90, "duration": 1}, {"again": 0}, -1),  # it is right when the step is made again
        ({"start": 90}, {"error": 4}, 4),
        ({"start": 90, "checksum": {"variance": False}}, {"again": 1}, -1),
    ],
)
def test_a_sampled_checksum_finds_a_wrong_product_when_that_is_due(fault, seen, found):
    fault = {"duration": 10, "checksum": {"variance": True}, "event": "none", **fault}
    looked = {"error": -1, "warning": -1, **seen}
    row = {"target": "site", "place": 0, "rank": 0, **fault, "found": {"asd adaptive": {"error": -1, "warning": -1}}}
    row["found"] |= {"asd adaptive + second look": looked, "asd second look": looked}
    measure._add_computed(row, {"event": fault["event"], "at": 80})
    assert row["found"][measure.SAMPLED]["error"] == found
