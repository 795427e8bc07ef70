"""Real ranks that train together replay a refused step: the right verdict, and no trace in what follows."""

import itertools
import json

import pytest

from tests.e2e.conftest import Runner

SLOW = pytest.mark.slow
QUIET = "weight gradient never"
DETECTED = ("weight gradient", "weight gradient changed", "weight gradient found alone")
PAIRS = (
    *((QUIET, "off"), (QUIET, "default"), ("persistent", "1"), ("persistent", "0")),
    *((story, "1") for story in DETECTED),
    *(("weight gradient once", "confirm"), (QUIET, "0")),
)
NUMBERS = ("losses", "digests", "changes", "refused")


def train_together(runner, mode, *trainings, ranks=2, timeout=300):
    """What each rank printed at the end of each of `trainings`, which are stories and what is done about them."""
    done, logs = runner.ranks("replay_parallel.py", mode, *itertools.chain(*trainings), count=ranks, timeout=timeout)
    assert done.code == 0, done
    found = [[json.loads(line[5:]) for line in log.splitlines() if line.startswith("RANK ")] for log in logs]
    assert [[each["rank"] for each in rank] for rank in found] == [[n] * len(trainings) for n in range(ranks)]
    return list(zip(*found, strict=True))


@pytest.fixture(scope="module", params=["pynative", pytest.param("graph", marks=SLOW)])
def together(request, tmp_path_factory):
    """What each rank printed at the end of each of `PAIRS`, which one job trains."""
    runner = Runner(tmp_path_factory.mktemp("together"))
    return dict(zip(PAIRS, train_together(runner, request.param, *PAIRS, timeout=550), strict=True))


def verdicts(rank):
    return {verdict for _, kind, verdict, _ in rank["events"] if kind == "replay"}


def assert_same(ours, theirs, names=NUMBERS):
    for name in names:
        assert [rank[name] for rank in ours] == [rank[name] for rank in theirs], name


def test_by_default_ranks_train_bit_for_bit_as_without_detection(together):
    checked, bare = together[QUIET, "default"], together[QUIET, "off"]
    assert_same(checked, bare, ("losses", "digests"))
    assert [rank["events"] for rank in checked] == [[], []]
    assert len(set(checked[0]["digests"])) == len(checked[0]["digests"]) > 6


def test_two_ranks_find_out_what_it_was_and_go_on_as_if_they_had_not_asked(together):
    ours, theirs = together["persistent", "1"], together["persistent", "0"]
    assert [verdicts(rank) for rank in (*ours, *theirs)] == [set(), {"persistent"}, set(), set()]
    assert_same(ours, theirs)
    assert all(rank["refused"] >= 1 for rank in ours)


@SLOW
@pytest.mark.parametrize(("story", "verdict"), [("transient", "transient"), ("poisoned", "software")])
@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_what_came_once_and_what_the_data_did_have_their_verdicts(runner, mode, story, verdict):
    ours, theirs = train_together(runner, mode, (story, "1"), (story, "0"))
    assert [verdicts(rank) for rank in ours] == [set(), {verdict}]
    assert_same(ours, theirs)


def test_a_fault_in_a_weight_s_gradient_is_blamed_on_its_own_rank_and_not_on_all_that_see_the_mean(together):
    healthy, suspect = together["weight gradient", "1"]
    assert (verdicts(healthy), verdicts(suspect)) == (set(), {"persistent"})
    errors = [[line for line in rank["named"] if line[2] == "ERROR"] for rank in (healthy, suspect)]
    assert errors[0] == []
    assert [line[1:] for line in healthy["named"] if line[0] == 8] == [["follower", "NORMAL", 0, ""]]
    assert [line[1:] for line in errors[1] if line[0] == 8] == [
        [kind, "ERROR", 1, "extra"] for kind in ("anomaly", "replay")
    ]


def test_a_change_that_all_ranks_see_is_no_device_s_fault_and_costs_one_update(together):
    for rank in together["weight gradient changed", "1"]:
        assert {line[0] for line in rank["named"] if line[2] == "ERROR"} == {8}
        assert (verdicts(rank), rank["refused"]) == ({"software"}, 1)


def test_a_second_look_heals_on_all_ranks_what_one_did_once_and_blames_that_one(together):
    healed = together["weight gradient once", "confirm"]
    assert_same(healed, together[QUIET, "0"], ("losses", "digests", "refused"))
    assert [verdicts(rank) for rank in healed] == [set(), {"transient"}]
    assert [line for line in healed[0]["named"] if line[0] == 8] == [[8, "follower", "NORMAL", 0, ""]]
    assert [line for line in healed[1]["named"] if line[0] == 8] == [
        [8, kind, "ERROR", 1, "extra"] for kind in ("anomaly", "replay")
    ]


def test_what_one_rank_found_of_its_device_ends_all_with_the_next_update(together):
    first, finder = together["weight gradient found alone", "1"]
    assert first["ended"] == finder["ended"] != ""
    assert ([line[:2] for line in first["named"]], first["refused"]) == ([[7, "follower"]], 1)
    assert ([line[:2] for line in finder["named"]], finder["refused"]) == ([[6, "anomaly"]], 1)


@SLOW
@pytest.mark.parametrize(("story", "named"), [("scaled", set()), ("scaled alone", {1})])
def test_a_loss_scale_is_one_where_all_ranks_show_it_in_the_first_step(runner, story, named):
    [told] = train_together(runner, "graph", (f"weight gradient {story}", "0"))
    assert {line[3] for rank in told for line in rank["named"] if line[:3] == [1, "anomaly", "ERROR"]} == named, told


@SLOW
def test_ranks_whose_weights_differ_are_no_siblings(runner):
    [(healthy, suspect)] = train_together(runner, "graph", ("weights apart", "1"))
    assert (verdicts(healthy), verdicts(suspect)) == (set(), {"undetermined"})


@SLOW
def test_three_ranks_agree_on_the_one_that_fails_each_time(runner):
    [(first, suspect, last)] = train_together(runner, "graph", ("persistent", "1"), ranks=3)
    assert (verdicts(first), verdicts(suspect), verdicts(last)) == (set(), {"persistent"}, set())


@SLOW
@pytest.mark.parametrize(("story", "verdict"), [("transient", "transient"), ("persistent", "undetermined")])
def test_where_no_rank_can_be_given_another_s_batch_all_make_their_own_step_again(runner, story, verdict):
    ours, theirs = train_together(runner, "graph", (story, "own"), (story, "0"))
    assert [verdicts(rank) for rank in ours] == [set(), {verdict}]
    assert_same(ours, theirs)


@SLOW
@pytest.mark.parametrize("ranks", [3, 2])
@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_rank_that_is_always_wrong_is_named_once_all_make_the_step_of_one_and_of_two_nobody(runner, mode, ranks):
    [found] = train_together(runner, mode, ("weight gradient audited", "1"), ranks=ranks)
    odd = [[line[:2] for line in rank["named"] if line[2] == "ERROR"] for rank in found]
    assert odd == ([[], [[22, "anomaly"]], []] if ranks == 3 else [[], []])
    events = [event for rank in found for event in rank["events"] if event[1] != "follower"]
    assert len(events) == 1
    assert all(name in events[0][3] for name in ("rank 0", "extra"))
    assert all(("every second one by all ranks" in rank["audit"]) is (ranks == 3) for rank in found)
