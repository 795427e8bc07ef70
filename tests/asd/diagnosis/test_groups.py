"""Which ranks hold the same, and whose fault it was among ranks that hold different parts."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd.diagnosis.attribution import Seen
from asd.diagnosis.flow import RankReport, blame_among, origin_among, report_of
from asd.diagnosis.groups import Groups, Shard, everybody
from asd.diagnosis.weights import compare_some, together

FOUR_PARTS = [Shard(part=str(rank % 2), labels=(f"part {rank % 2}", "whole")) for rank in range(4)]
TWO_STAGES = [Shard(stage=rank // 2) for rank in range(4)]
CALM, LOUD = 1.0, 1e9


def seen(**values):
    return {name: Seen(order, value, value > 1e6) for order, (name, value) in enumerate(values.items())}


def among(shards, own, averaged=None):
    """What all ranks decide when each has told of `own`, by rank."""
    words = []
    for rank in range(len(shards)):
        members = Groups(shards, rank, "").members
        means = {each: (averaged or {}).get(each, {}) for each in members}
        words.append(report_of(rank, {each: own[each] for each in members}, means))
    return origin_among(words, Groups(shards, 0, ""))


@given(st.permutations(list(itertools.product(range(2), "ab", range(3)))))
def test_replicas_are_one_rank_of_each_shard_whatever_their_order(places):
    shards = [Shard(stage, part, replica) for stage, part, replica in places]
    groups = Groups(shards, 5, "")
    assert {shards[rank][:2] for rank in groups.members} == {shards[5][:2]}
    assert groups.members[shards[5].replica] == 5
    for number, ranks in enumerate(groups.replicas):
        assert [shards[rank] for rank in ranks] == [Shard(s, p, number) for s in range(2) for p in "ab"]
        assert {groups.replica_of(rank) for rank in ranks} == {number}


def test_without_as_many_ranks_for_each_part_there_are_no_replicas():
    assert Groups([Shard(), Shard(), Shard(part="b")], 0, "").replicas == ()


def test_it_is_said_what_a_rank_holds_with_whom_and_how_that_is_known():
    for groups, names in (
        (Groups(FOUR_PARTS, 3, "told"), (" shard 1, ", " rank 1:", ": told")),
        (Groups(TWO_STAGES, 3, "told"), (" stage 1 of 2, ", " rank 2:", ": told")),
        (everybody(3, 0, "data_parallel"), (" the whole network, ", " ranks 1, 2:", ": data_parallel")),
    ):
        assert all(name in groups.words for name in names)
    assert everybody(1, 0, "").words == ""


def test_weights_that_other_ranks_hold_are_apart_only_where_some_of_the_replicas_do_not():
    expert = [Shard(labels=("all", f"expert {rank}")) for rank in range(2)]
    groups = Groups(expert, 1, "", lambda name: "expert 1" if "expert" in name else "all")
    assert (groups.is_apart("averaged.experts.w"), groups.is_apart("norm.gamma")) == (True, False)
    assert not Groups(FOUR_PARTS, 1, "", lambda name: "whole" if "norm" in name else "part 1").is_apart("norm.gamma")


@pytest.mark.parametrize("victim", range(4))
def test_among_the_parts_of_a_layer_the_one_whose_value_was_wrong_first_is_named(victim):
    own = {rank: seen(norm=CALM, up=CALM, down=CALM) for rank in range(4)}
    own[victim] = seen(norm=CALM, up=LOUD, down=LOUD)
    own[victim ^ 1] = seen(norm=CALM, up=CALM, down=LOUD)  # the sum over the parts brought it there
    found = among(FOUR_PARTS, own)
    assert (found.origin, found.checkpoint, found.followers, found.compared) == (victim, "up", (victim ^ 1,), True)
    assert " 29.9 bits " in found.reason


def test_of_parts_that_saw_the_same_first_the_one_with_more_wrong_values_is_named_and_of_equals_none():
    alike = seen(norm=LOUD, w=CALM)
    own = {0: alike, 1: seen(norm=LOUD, w=LOUD), 2: seen(norm=CALM, w=CALM), 3: seen(norm=CALM, w=CALM)}
    assert among(FOUR_PARTS, own).origin == 1
    for value in (LOUD, 1.01 * LOUD):  # a sum over the parts leaves it a little larger here than there
        found = among(FOUR_PARTS, own | {1: seen(norm=value, w=CALM)})
        assert (found.names_nobody, found.ranks) == (True, (0, 1))


def test_a_batch_that_raises_all_ranks_is_blamed_on_none():
    found = among(FOUR_PARTS, dict.fromkeys(range(4), seen(norm=LOUD)))
    assert (found.origin, found.ranks) == (None, (0, 1, 2, 3))
    assert "the data or the software" in found.reason


def test_a_fault_at_the_end_of_a_pipeline_may_be_one_of_the_forward_pass_of_an_earlier_stage():
    found = among(TWO_STAGES, {rank: seen(gradient=CALM if rank % 2 else LOUD) for rank in range(4)})
    assert (found.names_nobody, found.ranks, "an earlier stage" in found.reason) == (True, (0, 2), True)


def test_a_fault_of_the_first_stage_is_its_own():
    own = {rank: seen(gradient=CALM) for rank in range(4)}
    assert among(TWO_STAGES, own | {1: seen(gradient=LOUD)}).origin == 1


def test_a_mean_is_blamed_on_a_rank_whose_copy_alone_is_bad_and_on_none_where_all_that_share_it_have_it():
    own = dict.fromkeys(range(4), seen(norm=CALM))
    good, bad = seen(mean=CALM), seen(mean=LOUD)
    odd = among(FOUR_PARTS, own, averaged={0: good, 1: bad, 2: good, 3: good})
    assert (odd.origin, odd.shared) == (1, True)
    assert among(FOUR_PARTS, own, averaged={0: good, 1: bad, 2: good, 3: bad}).ranks == ()


def test_what_a_second_run_did_not_show_again_is_blamed_on_the_rank_where_it_began():
    groups = Groups(FOUR_PARTS, 0, "")
    healthy = RankReport()
    words = [RankReport("norm", position=4, wrong=3), RankReport("up", position=2, wrong=4), healthy, healthy]
    found = blame_among(words, groups)
    assert (found.origin, found.checkpoint, found.followers) == (1, "up", (0,))
    assert all(place in found.reason for place in ("rank 0 at norm", "rank 1 at up"))
    alike = [RankReport("norm", position=4, wrong=3)] * 2 + [healthy] * 2
    assert blame_among(alike, groups).names_nobody
    assert blame_among([healthy] * 4, groups) is None
    both = blame_among([healthy, RankReport(mean="a"), healthy, RankReport(mean="a")], groups)
    assert (both.names_nobody, both.ranks) == (True, (1, 3))  # rank 0 has no such weight, and can't tell of it
    part = blame_among([healthy, healthy, healthy, RankReport(mean="part.w")], groups)
    assert (part.names_nobody, part.ranks) == (True, (3,))
    assert blame_among([RankReport(mean="a"), healthy, healthy, healthy], groups).origin == 0


def test_what_was_gone_first_at_the_end_of_a_pipeline_names_nobody_and_in_the_first_stage_alone_its_rank():
    groups, healthy, gone = Groups(TWO_STAGES, 0, ""), RankReport(), RankReport("norm", wrong=1)
    for words in ([healthy, healthy, gone, healthy], [gone, healthy, gone, healthy]):
        assert blame_among(words, groups).names_nobody
    assert blame_among([healthy, gone, healthy, healthy], groups).origin == 1


def test_weights_are_compared_among_those_that_hold_them_and_ranks_have_their_own_numbers():
    told = [{"a": [each]} for each in (1, 2, 1, 2)]
    assert compare_some((0, 2), told, {}) is None
    assert compare_some((1, 3), told, {}) is None
    assert compare_some((0, 1), told, {}).reason.startswith("ranks 0, 1 differ in a")
    odd = compare_some((0, 2, 3), told, {})
    assert (odd.odd, odd.reason.split()[:3]) == ((3,), ["rank", "3", "differs"])
    both = together([odd, compare_some((0, 1, 2), told, {})])
    assert (both.odd, both.weights) == ((1, 3), ("a", "a"))
    assert together([]) is None


def test_a_word_that_is_not_a_number_stands_out_where_nobody_else_holds_the_same():
    assert RankReport("a", distance=math.nan).stands_out
    assert not RankReport("a", distance=3.2).stands_out


@pytest.mark.parametrize(
    ("told", "origin", "ranks", "shared"),
    [
        ([("", ""), ("w", "mean w"), ("", "mean w")], 1, (1,), False),
        ([("a", ""), ("w", ""), ("", "")], None, (0, 1), False),
        ([("", ""), ("", "mean w"), ("", "")], 1, (1,), True),
        ([("", "mean w"), ("", "mean w"), ("", "")], None, (0, 1), True),
        ([("", "mean w"), ("", "mean w"), ("", "mean w")], None, (0, 1, 2), True),
    ],
    ids=["one rank's own", "two ranks' own", "one rank's mean", "two ranks' mean", "the mean of all"],
)
def test_what_is_gone_is_blamed_on_the_rank_that_had_it_alone(told, origin, ranks, shared):
    found = blame_among([RankReport(own, mean=mean) for own, mean in told], everybody(3, 0, "data parallel"))
    assert (found.origin, found.ranks, found.shared) == (origin, ranks, shared)
