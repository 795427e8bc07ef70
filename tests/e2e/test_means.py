"""Real ranks whose all-reduce returns a mean that is a little off, which no size of a tensor shows."""

import json

import pytest

MODES = ["graph", "pynative"]
PLACE = "averaged.first.weight.checksum"
NO_DEVICE = (
    "the mean over the ranks does not fit its checksum; all ranks have the same mean, so none can be named for it"
)


@pytest.fixture(scope="module")
def healthy():
    """What both ranks told of each step of the training without a fault, by mode; each runs once."""
    told = {}

    def steps(runner, mode):
        if mode not in told:
            told[mode] = train_together(runner, mode, "never")
        return told[mode]

    return steps


def train_together(runner, mode, fault, style="cell"):
    """What both ranks told of each step."""
    done, logs = runner.ranks("reducing.py", mode, fault, style)
    steps = [
        [json.loads(line.partition("STEP ")[2]) for line in log.splitlines() if line.startswith("STEP ")]
        for log in logs
    ]
    assert done.code == 0, done
    assert [len(rank) for rank in steps] == [6, 6], done
    return steps


@pytest.mark.parametrize("mode", MODES)
def test_a_mean_that_is_wrong_on_one_rank_names_the_parameter_and_that_rank_and_none_of_them_applies_it(runner, mode):
    healthy, wrong = train_together(runner, mode, "one")
    assert (
        [step["refused"] for step in healthy]
        == [step["refused"] for step in wrong]
        == [
            False,
            False,
            False,
            True,
            False,
            False,
        ]
    )
    assert [step["digest"] for step in healthy] == [step["digest"] for step in wrong]
    assert [[told[0] for told in step["told"]] for step in healthy] == [[], [], [], ["follower"], [], []]
    assert [[told[:2] for told in step["told"]] for step in wrong] == [[], [], [], [["anomaly", PLACE]], [], []]
    reason = wrong[3]["told"][0][2]
    assert reason.startswith("the mean over the ranks does not fit its checksum")
    assert f"rank 1 broke its limit at {PLACE}" in healthy[3]["told"][0][2] + reason


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_mean_that_is_wrong_on_all_ranks_alike_names_no_rank(runner, mode):
    ranks = train_together(runner, mode, "both")
    for steps, kind in zip(ranks, ("anomaly", "follower"), strict=True):
        assert [step["refused"] for step in steps] == [False, False, False, True, False, False]
        assert [[told[:3] for told in step["told"]] for step in steps] == [
            [],
            [],
            [],
            [[kind, PLACE, NO_DEVICE]],
            [],
            [],
        ]
    assert [steps[3]["told"][0][3] for steps in ranks] == [-1, 1]


@pytest.mark.slow
def test_a_step_with_a_bad_mean_made_again_blames_neither_the_device_nor_the_data(runner):
    healthy, wrong = train_together(runner, "graph", "again")
    assert [told[0] for told in healthy[3]["told"]] == ["follower"]
    assert [told[:2] for told in wrong[3]["told"]] == [["anomaly", PLACE], ["replay", PLACE]]
    assert wrong[3]["told"][1][2] == "a mean over the ranks is no answer of one of them"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_mean_that_a_second_look_finds_right_is_healed_and_its_rank_named(runner, healthy, mode):
    ranks = train_together(runner, mode, "once")
    untouched = healthy(runner, mode)
    assert [[step["digest"] for step in rank] for rank in ranks] == [
        [step["digest"] for step in rank] for rank in untouched
    ]
    assert [[len(step["told"]) for step in rank] for rank in ranks] == [[0, 0, 0, 1, 0, 0], [0, 0, 0, 2, 0, 0]]
    other, wrong = (rank[3]["told"] for rank in ranks)
    assert other[0][0] == "follower"
    assert other[0][2].endswith(f"what was suspicious is gone on rank 1 at {PLACE}")
    assert [told[:2] + told[3:] for told in wrong] == [["anomaly", PLACE, 1], ["replay", PLACE, 1]]
    assert wrong[1][2] == "within its limits when the same step was made again"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_the_reducer_of_a_loop_of_one_s_own_is_checked_where_it_is_handed_over(runner, mode):
    _, wrong = train_together(runner, mode, "one", "loop")
    assert [[told[1] for told in step["told"]] for step in wrong] == [[], [], [], [PLACE], [], []]
    assert wrong[3]["refused"]


@pytest.mark.parametrize("mode", MODES)
def test_checked_means_are_those_of_an_unchecked_training_bit_for_bit(runner, healthy, mode):
    checked, bare = healthy(runner, mode), train_together(runner, mode, "bare")
    assert [[step["digest"] for step in rank] for rank in checked] == [
        [step["digest"] for step in rank] for rank in bare
    ]
    assert all(step["told"] == [] for rank in checked for step in rank)
