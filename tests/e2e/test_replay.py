"""Real ranks that train together replay a refused step: the right verdict, and no trace in what follows."""

import itertools
import json

import pytest

SLOW = pytest.mark.slow


def train_together(runner, mode, *trainings, ranks=2, timeout=150):
    """What each rank printed at the end of each of `trainings`, which are stories and what is done about them."""
    done, logs = runner.ranks("replay_parallel.py", mode, *itertools.chain(*trainings), count=ranks, timeout=timeout)
    assert done.code == 0, done
    found = [[json.loads(line[5:]) for line in log.splitlines() if line.startswith("RANK ")] for log in logs]
    assert [[each["rank"] for each in rank] for rank in found] == [[n] * len(trainings) for n in range(ranks)]
    return list(zip(*found, strict=True))


def verdicts(rank):
    return {verdict for _, kind, verdict, _ in rank["events"] if kind == "replay"}


STORIES = {"transient": "transient", "persistent": "persistent", "poisoned": "software"}


@pytest.mark.parametrize(
    "story", ["persistent", pytest.param("transient", marks=SLOW), pytest.param("poisoned", marks=SLOW)]
)
@pytest.mark.parametrize("mode", ["graph", pytest.param("pynative", marks=SLOW)])
def test_two_ranks_find_out_what_it_was_and_go_on_as_if_they_had_not_asked(runner, mode, story):
    ours, theirs = train_together(runner, mode, (story, "1"), (story, "0"))
    assert [verdicts(rank) for rank in ours] == [set(), {STORIES[story]}]
    assert [verdicts(rank) for rank in theirs] == [set(), set()]
    for name in ("losses", "digests", "changes", "refused"):
        assert [rank[name] for rank in ours] == [rank[name] for rank in theirs], name
    assert all(rank["refused"] >= 1 for rank in ours)


@pytest.mark.parametrize("mode", ["graph", pytest.param("pynative", marks=SLOW)])
def test_a_fault_in_a_weight_s_gradient_is_blamed_on_its_own_rank_and_not_on_all_that_see_the_mean(runner, mode):
    [(healthy, suspect)] = train_together(runner, mode, ("weight gradient", "1"))
    assert (verdicts(healthy), verdicts(suspect)) == (set(), {"persistent"})
    errors = [[line for line in rank["named"] if line[2] == "ERROR"] for rank in (healthy, suspect)]
    assert errors[0] == []
    assert [line[1:] for line in healthy["named"] if line[0] == 8] == [["follower", "NORMAL", 0, ""]]
    assert [line[1:] for line in errors[1] if line[0] == 8] == [
        ["anomaly", "ERROR", 1, "extra"],
        ["replay", "ERROR", 1, "extra"],
    ]
    reasons = [reason for step, kind, _, reason in healthy["events"] if step >= 8]
    assert reasons
    assert all("rank 1 broke its limit at extra" in reason for reason in reasons)


@pytest.mark.parametrize("mode", ["graph", pytest.param("pynative", marks=SLOW)])
def test_a_change_that_all_ranks_see_is_no_device_s_fault_and_costs_one_update(runner, mode):
    [ranks] = train_together(runner, mode, ("weight gradient changed", "1"))
    for rank in ranks:
        assert {line[0] for line in rank["named"] if line[2] == "ERROR"} == {8}
        assert (verdicts(rank), rank["refused"]) == ({"software"}, 1)


@pytest.mark.parametrize("mode", ["graph", pytest.param("pynative", marks=SLOW)])
def test_a_second_look_heals_on_all_ranks_what_one_did_once_and_blames_that_one(runner, mode):
    pair = ("weight gradient once", "confirm"), ("weight gradient never", "0")
    healed, healthy = train_together(runner, mode, *pair)
    for name in ("losses", "digests", "refused"):
        assert [rank[name] for rank in healed] == [rank[name] for rank in healthy], name
    assert [verdicts(rank) for rank in healed] == [set(), {"transient"}]
    assert [line for line in healed[0]["named"] if line[0] == 8] == [[8, "follower", "NORMAL", 0, ""]]
    assert [line for line in healed[1]["named"] if line[0] == 8] == [
        [8, "anomaly", "ERROR", 1, "extra"],
        [8, "replay", "ERROR", 1, "extra"],
    ]


@SLOW
def test_ranks_whose_weights_differ_are_no_siblings(runner):
    [(healthy, suspect)] = train_together(runner, "graph", ("weights apart", "1"))
    assert verdicts(healthy) == set()
    assert verdicts(suspect) == {"undetermined"}
    assert {reason for _, kind, _, reason in suspect["events"] if kind == "replay"} == {
        "the same answer twice, and no other rank has the same weights: it can be persistent hardware, software or data"
    }


@SLOW
def test_three_ranks_agree_on_the_one_that_fails_each_time(runner):
    [(first, suspect, last)] = train_together(runner, "graph", ("persistent", "1"), ranks=3)
    assert (verdicts(first), verdicts(suspect), verdicts(last)) == (set(), {"persistent"}, set())


@SLOW
@pytest.mark.parametrize(("story", "verdict"), [("transient", "transient"), ("persistent", "undetermined")])
def test_where_no_rank_can_be_given_another_s_batch_all_make_their_own_step_again(runner, story, verdict):
    ours, theirs = train_together(runner, "graph", (story, "own"), (story, "0"))
    assert [verdicts(rank) for rank in ours] == [set(), {verdict}]
    for name in ("losses", "digests", "changes", "refused"):
        assert [rank[name] for rank in ours] == [rank[name] for rank in theirs], name


@pytest.mark.parametrize(
    ("mode", "ranks"), [("pynative", 3), pytest.param("graph", 3, marks=SLOW), pytest.param("pynative", 2, marks=SLOW)]
)
def test_a_rank_that_is_always_wrong_is_named_once_all_make_the_step_of_one_and_of_two_nobody(runner, mode, ranks):
    [found] = train_together(runner, mode, ("weight gradient audited", "1"), ranks=ranks)
    odd = [[line[:2] for line in rank["named"] if line[2] == "ERROR"] for rank in found]
    words = {rank["audit"] for rank in found}
    if ranks == 2:
        assert odd == [[], []]
        (reason,) = (event[3] for rank in found for event in rank["events"])
        assert reason.startswith("with the batch of rank 0 ranks 1 and 0 do not come to the same: extra is ")
        why = reason.removeprefix("with the batch of rank 0 ")
        assert words == {f"one step of 12 is made twice, none with one rank's batch on all: {why}"}
        return
    assert odd == [[], [[22, "anomaly"]], []]
    (reason,) = (event[3] for event in found[1]["events"])
    assert reason.startswith("on this rank the batch of rank 0 came to something else than on all others: extra is ")
    assert words == {"one step of 12 is made twice, every second one by all ranks"}
