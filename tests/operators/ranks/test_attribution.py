"""Whose fault it was where ranks hold parts of the network, and see gradients after a sum over ranks."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from asd.diagnosis.attribution import Seen
from asd.diagnosis.flow import blame_among
from asd.diagnosis.groups import Groups, Shard
from asd.operators.ranks import attribution
from asd.operators.ranks.attribution import attribution_of, words_of_vanished
from asd.operators.ranks.exchange import _Process
from asd.rules.reading import AVERAGED, WEIGHT_GRADIENT, Reading

TWO_STAGES = [Shard(stage=rank // 2) for rank in range(4)]
SLICES = [Shard(labels=(f"slice {rank}",)) for rank in range(4)]  # as by a parallel optimizer
LOUD, CALM = Seen(0, 1e9, broken=True), Seen(0, 1.0, broken=False)


class Ranks:
    """Exchange of one of four ranks, each in a thread of its own."""

    size = 4

    def __init__(self, rank, shards, board):
        label = shards[rank].labels[0] if shards[rank].labels else ""
        self.rank, self.groups, self._board = rank, Groups(shards, rank, "", lambda _: label), board
        self.near = self if self.groups.whole else SimpleNamespace(gather=self._gather_near)

    def gather(self, message):
        messages, barrier = self._board
        messages[self.rank] = message
        barrier.wait(10)
        found = list(messages)
        barrier.wait(10)
        return found

    def _gather_near(self, message):
        found = self.gather(message)
        return [found[rank] for rank in self.groups.members]


def on_each(shards, ask):
    """Returns what `ask` comes to with the exchange of each rank."""
    board = [b""] * 4, threading.Barrier(4)
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda rank: ask(Ranks(rank, shards, board)), range(4)))


def test_a_mean_that_is_wrong_in_a_stage_that_rank_0_does_not_hold_is_told_by_a_rank_that_does():
    own = {"norm": CALM}
    bad = {"averaged.w": LOUD}
    for found in on_each(TWO_STAGES, lambda ranks: attribution_of(ranks, own, bad if ranks.rank > 1 else {})):
        assert (found.names_nobody, found.ranks) == (True, (2, 3))


@pytest.mark.parametrize("shards_it", [True, False], ids=["MindSpore", "the program"])
def test_a_slice_of_a_gradient_that_mindspore_summed_inside_its_graph_names_no_device(monkeypatch, shards_it):
    monkeypatch.setattr(attribution, "operators_are_divided", lambda: shards_it)
    told = on_each(SLICES, lambda each: attribution_of(each, {"w": LOUD if each.rank == 3 else CALM}, {}))
    assert {(found.origin, found.names_nobody) for found in told} == {(None, shards_it)}

    def gone(each):
        reading = Reading("w", 1e9, 0, WEIGHT_GRADIENT)
        return blame_among(words_of_vanished(each, [reading] if each.rank == 3 else [], [reading]), each.groups)

    for found in on_each(SLICES, gone):
        assert (found.ranks, found.names_nobody) == ((3,), shards_it)


def test_a_local_gradient_names_its_rank_though_the_shard_of_its_sum_is_wrong_on_another():
    def found(each):
        own = {"w": LOUD if each.rank == 1 else CALM}
        return attribution_of(each, own, {"part.w": LOUD if each.rank == 3 else CALM})

    assert {each.origin for each in on_each([Shard(labels=("all",))] * 4, found)} == {1}


def test_what_vanished_from_a_mean_is_blamed_on_the_rank_whose_copy_was_wrong():
    reading = Reading("averaged.w", 1e9, 0, AVERAGED)
    whole = [Shard(labels=("all",))] * 4
    told = on_each(whole, lambda each: words_of_vanished(each, [reading] if each.rank == 2 else [], [reading]))
    assert blame_among(told[0], Groups(whole, 0, "")).origin == 2


def test_a_process_of_another_container_on_this_host_is_unknown_and_one_that_ended_has_died():
    ended = _Process.this()._replace(pid=1 << 30)
    assert (ended.flaw(), ended._replace(machine=f"{ended.host} pid:[1]").flaw()) == ("has died", "")
