"""What ranks learn and judge, step by step, against the same written down as plainly as the documentation has it."""

from math import inf
from random import Random
from statistics import median, median_high, median_low

import pytest

from asd import ConfigError, Level, StateError
from asd.rules import Ranks
from asd.rules.trace import Trace


class Plain:
    """Ranks of which none is 0."""

    def __init__(self, size):
        self.size, self.center = size, Trace()
        self.high = self.low = 0.0
        self.window, self.lasting, self.lasted, self.errors = [], 0.25, 0, 0

    def update(self, x):
        others = [x[:i] + x[i + 1 :] for i in range(self.size)]
        above = [each - median_high(rest) for each, rest in zip(x, others, strict=True)]
        below = [median_low(rest) - each for each, rest in zip(x, others, strict=True)]
        self.window = [
            *self.window,
            [min(pair, key=abs) for pair in zip(above, (-each for each in below), strict=True)],
        ][-20:]
        means = (
            [sum(steps) / 10 for steps in zip(*self.window[-10:], strict=True)]
            if self.center.n >= 100
            else [0.0] * self.size
        )
        limits, levels = [inf] * self.size, [Level.NORMAL] * self.size
        if self.center.n >= 5:
            dev = max(self.center.dev, 0.05)
            for i, each in enumerate(x):
                z = (each - self.center.mu) / dev
                limits[i] = 2.0 ** max(median_high(others[i]) + self.high + 3.3, self.center.mu + 6.1 * dev)
                if above[i] > self.high + 3.3 and z > 6.1:
                    levels[i] = Level.ERROR
                elif (below[i] > self.low + 3.3 and z < -6.1) or means[i] > 2.5 * self.lasting:
                    levels[i] = Level.WARNING
        self.errors = self.errors + 1 if Level.ERROR in levels else 0
        if not self.errors or self.errors > 20:
            self.learn(x, max(above), max(below), max(means) > 2.5 * self.lasting)
        return levels, limits

    def learn(self, x, above, below, lasts):
        most = inf if self.center.n < 5 else 3.3
        self.high = max(min(above, self.high + most), self.high - 0.01, 0.0)
        self.low = max(min(below, self.low + most), self.low - 0.01, 0.0)
        self.lasted = self.lasted + 1 if lasts else 0
        if len(self.window) == 20 and not 0 < self.lasted <= 20:
            self.lasting = max(self.lasting, *(sum(steps) / 10 for steps in zip(*self.window[:10], strict=True)))
        self.center.learn(median(x), median(abs(each - self.center.mu) for each in x))


def trained(size, seed):
    """Logarithms by rank: a first step far apart, healthy ones, then each thing that can go wrong, again and again."""
    random = Random(seed)
    for step in range(330):
        x = [random.gauss(-3.0, 0.4) for _ in range(size)]
        if step == 2:
            x[0] += 1.5
        if step >= 130:
            rank, what = step // 40 % size, step % 40
            x[rank] += 9.0 if what < 24 else -9.0 if what == 27 else 6.0 if what == 29 else 0.0
        if step >= 240:
            x[-1] += 2.6
        yield x


def values(x):
    return [2.0**each for each in x]


def assert_same(ranks, plain):
    state = ranks.state()
    assert state["errors"] == plain.errors
    mine = state["differences"]
    assert (mine["high"], mine["low"], mine["lasting"]) == pytest.approx((plain.high, plain.low, plain.lasting))
    assert mine["lasted"] == plain.lasted
    assert mine["center"] == pytest.approx(plain.center.state())
    assert [each for row in mine["window"] for each in row] == pytest.approx(
        [each for row in plain.window for each in row]
    )


@pytest.mark.parametrize("kind", ["B", "W"])
@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
def test_ranks_judge_and_learn_step_by_step_as_documented(kind, size):
    ranks, plain = Ranks(kind, size), Plain(size)
    seen = set()
    for step, x in enumerate(trained(size, seed=size + 10)):
        found = ranks.update(values(x))
        levels, limits = plain.update(x)
        seen |= set(levels)
        limits = [limit if level > Level.NORMAL else inf for level, limit in zip(levels, limits, strict=True)]
        if size == 2:
            levels = [max(levels)] * 2
        assert [verdict.level for verdict in found] == levels, step
        assert [verdict.limit for verdict in found] == pytest.approx(limits), step
        assert [verdict.value for verdict in found] == [2.0**each for each in x]
        if step % 8 == 0:
            assert_same(ranks, plain)
    assert_same(ranks, plain)
    assert seen == {Level.NORMAL, Level.WARNING, Level.ERROR}


def steady(kind, size, steps=30):
    ranks = Ranks(kind, size)
    for step in range(steps):
        ranks.update(values([1.0 + step % 2 * 2.0**-9] * size))
    return ranks


def test_each_finding_says_by_how_much_a_rank_differs():
    ranks = steady("B", 3)
    assert ranks.update([2.0, 32.0, 2.0])[1].reason == "gradient: 4.0 bits above the median of the other ranks"
    assert ranks.update([2.0, 2.0, 0.125])[2][:3] == (
        Level.WARNING,
        "gradient: 4.0 bits below the median of the other ranks",
        0.125,
    )
    ranks = steady("B", 3, 100)
    found = [ranks.update([2.0, 2.0, 4.0])[2] for _ in range(8)]
    assert [verdict.level for verdict in found] == [Level.NORMAL] * 6 + [Level.WARNING] * 2
    assert found[-1].reason == "gradient: above the other ranks by 0.8 bits for 10 steps"


@pytest.mark.parametrize(
    ("finite", "size", "level"),
    [(2, 4, Level.WARNING), (3, 4, Level.ERROR), (2, 3, Level.ERROR), (0, 4, Level.WARNING)],
)
def test_a_rank_that_is_not_finite_is_judged_by_how_many_others_are(finite, size, level):
    found = Ranks("B", size).update([1.0] * finite + [inf] * (size - finite))
    word = "where most ranks are" if level is Level.ERROR else "as on other ranks"
    assert found[:finite] == [(Level.NORMAL, "", 1.0, inf)] * finite
    assert found[finite:] == [(level, f"gradient: not finite, {word}", inf, inf)] * (size - finite)


@pytest.mark.parametrize(("middle", "limit"), [(1019.5, 2.0**1022.8), (1019.75, inf), (-3.3, 1.0)])
def test_a_limit_beyond_every_float_is_none(middle, limit):
    ranks = Ranks("B", 3)
    one, other = 2.0**middle, 2.0 ** (middle + 3.31)
    for _ in range(30):
        ranks.update([one] * 3)
    found = ranks.update([one, one, other])
    assert (found[2].level, found[2].limit) == (Level.ERROR, pytest.approx(limit))


def test_a_step_with_a_rank_of_zeros_is_no_alarm_and_teaches_nothing():
    ranks = steady("B", 3)
    before = ranks.state()
    assert ranks.update([64.0, 2.0, 0.0]) == [(Level.NORMAL, "", each, inf) for each in (64.0, 2.0, 0.0)]
    assert ranks.state() == before


@pytest.mark.parametrize("size", [True, 0, 1.0])
def test_a_number_of_ranks_is_a_whole_number(size):
    with pytest.raises(ConfigError, match="size has the value"):
        Ranks("B", size)


@pytest.mark.parametrize(
    ("key", "wrong", "says"),
    [
        ("high", -0.5, "high has the value -0.5"),
        ("low", -0.5, "low has the value -0.5"),
        ("lasting", 0.24, "lasting has the value 0.24"),
        ("lasted", -1, "lasted has the value -1"),
        ("window", 3, r"window is not valid: a list of at most 20 steps\."),
        ("window", [[0.0] * 2] * 21, r"window is not valid: a list of at most 20 steps\."),
        ("window", [[0.0] * 3], "a list of 2 numbers"),
    ],
)
def test_a_state_that_ranks_can_not_have_had_is_refused_and_changes_nothing(key, wrong, says):
    ranks = steady("B", 2)
    before = ranks.state()
    with pytest.raises(StateError, match=says):
        ranks.restore({"errors": 7, "differences": {**before["differences"], key: wrong}})
    assert ranks.state() == before


@pytest.mark.parametrize("kind", ["B", "W"])
def test_where_ranks_swing_together_deviations_are_the_limit(kind):
    ranks = Ranks(kind, 3)
    for step in range(60):
        ranks.update(values([3.0 * (-1) ** step + step % 3 * 2.0**-6] * 3))
    center = ranks.state()["differences"]["center"]
    found = ranks.update(values([0.0, 0.0, 60.0]))
    assert found[2].limit == pytest.approx(2.0 ** (center["mu"] + 6.1 * center["dev"]))


def test_whatever_comes_in_the_first_five_steps_is_only_learned():
    for far in (9.0, -9.0):
        ranks = Ranks("W", 3)
        for step in range(5):
            found = ranks.update(values([0.0, 0.0, far if step in (3, 4) else 0.0]))
            assert found == [(Level.NORMAL, "", each, inf) for each in (1.0, 1.0, found[2].value)]


def test_the_sixth_step_is_judged_and_small_lasting_differences_from_the_hundred_and_first_on():
    assert steady("W", 3, 5).update(values([1.0, 1.0, 20.0]))[2].level is Level.ERROR
    ranks = steady("W", 3, 93)
    found = [ranks.update(values([1.0, 1.0, 2.0]))[2].level for _ in range(93, 102)]
    assert found == [Level.NORMAL] * 7 + [Level.WARNING] * 2
