"""Which ranks hold the same: by MindSpore's layout and by what a training tells."""

import pytest

from asd.diagnosis.groups import Groups, Shard
from asd.errors import ConfigError
from asd.operators import tell_shard
from asd.operators.ranks import shards
from asd.operators.ranks.shards import shard_of_layout

# As MindSpore 2.9 gave them when it compiled the blocks of tests/ascend for 4 ranks, tensor parallel 2 by data
# parallel 2, and for rank 5 of 8 with two pipeline stages.
WHOLE = [[2, 2], [-1], [64], 0, True, "", [64], [64], False, False, 0, 0]
COLUMNS = [[2, 2], [-1, 0], [64, 64], 0, True, "", [64, 128], [64, 64], False, False, 0, 0]
ROWS = [[2, 2], [0, -1], [64, 64], 0, True, "", [128, 64], [64, 64], False, False, 0, 0]
LAYOUT = {"layers.1.norm.gamma": WHOLE, "layers.1.up.weight": COLUMNS, "layers.1.down.weight": ROWS}


@pytest.fixture(autouse=True)
def nothing_told():
    yield
    shards._Known.told = None


def test_ranks_with_the_same_slices_of_all_weights_hold_the_same_and_norms_are_held_by_all():
    found = [shard_of_layout(LAYOUT, rank, 0, 0) for rank in range(4)]
    groups = Groups([shard for shard, _ in found], 1, "", found[1][1].get)
    assert groups.members == (1, 3)
    assert groups.replicas == ((0, 1), (2, 3))
    assert groups.holders == {"0,1,2,3": (0, 1, 2, 3), "0,2": (0, 2), "1,3": (1, 3)}
    assert found[1][1] == {"layers.1.norm.gamma": "0,1,2,3", "layers.1.up.weight": "1,3", "layers.1.down.weight": "1,3"}
    assert not any(map(groups.is_apart, LAYOUT))


def test_in_a_pipeline_only_ranks_of_the_same_stage_hold_the_same():
    found = [shard_of_layout(LAYOUT, rank, rank // 4, rank // 4 * 4) for rank in range(8)]
    groups = Groups([shard for shard, _ in found], 5, "", found[5][1].get)
    assert groups.members == (5, 7)
    assert groups.replicas == ((0, 1, 4, 5), (2, 3, 6, 7))
    assert all(word in groups.words for word in (" stage 1 of 2, ", " shard 5,7, ", " rank 7:"))


@pytest.mark.parametrize(
    ("name", "given", "wrong", "valid"),
    [
        ("part", 1.5, 1.5, "a text or a whole number"),
        ("stage", -1, -1, "from 0 on"),
        ("replica", "0", "0", "from 0 on"),
        ("weights", {"(": 1}, "(", "a regular expression"),
        ("weights", {"w": None}, None, "a text or a whole number"),
    ],
)
def test_what_can_t_be_told_is_an_error_that_says_what_can(name, given, wrong, valid):
    with pytest.raises(ConfigError, match=valid) as raised:
        tell_shard(**{name: given})
    assert (raised.value.variable, raised.value.value, shards._Known.told) == (name, wrong, None)


class Four:
    """Four ranks, of which the others have told `words`."""

    rank, size = 0, 4

    def __init__(self, words):
        self.words = words

    def tell(self, **own):
        return [own, *self.words]


def test_what_all_ranks_tell_is_taken_as_it_is():
    tell_shard(0, weights={"norm": "whole"})
    others = [{"told": [str(rank % 2), 0, -1, [["norm", "whole"]]]} for rank in (1, 2, 3)]
    groups = shards.find_groups(Four(others), [])
    assert (groups.members, groups.source) == ((0, 2), "told by tell_shard")
    assert groups.label_of("blocks.0.norm.gamma") == "stage 0, norm: whole"
    assert groups.holders["stage 0, norm: whole"] == (0, 1, 2, 3)
    assert groups.holders["stage 0, all: 0"] == (0, 2)


def test_a_rank_that_tells_nothing_where_others_do_or_has_another_setting_is_an_error_on_all_of_them():
    tell_shard(0)
    with pytest.raises(ConfigError, match="tell_shard .* 2 of 4 ranks, not on rank 1"):
        shards.find_groups(Four([{"told": None}, {"told": ["0", 0, -1, []]}, {"told": None}]), [])
    with pytest.raises(ConfigError, match="^replay has the value True, .*: rank 1 has False"):
        shards.find_groups(Four([{"settings": {"replay": each}} for each in (False, True, True)]), [], replay=True)


@pytest.mark.parametrize(
    ("held", "members", "source"),
    [
        (("a", "a", "a"), (0, 1, 2, 3), "they began with the same weights"),
        (("b", "a", "b"), (0, 2), "ranks with the same initial weights"),
        (("a", ["", "weights cannot be read"], "a"), (0,), "on rank 2 weights cannot be read"),
        (("b", "c", "d"), (0,), "no two ranks began with the same weights"),
    ],
)
def test_where_nobody_tells_ranks_that_begin_with_the_same_weights_hold_the_same(monkeypatch, held, members, source):
    monkeypatch.setattr(shards, "_held", lambda _: "a")
    groups = shards.find_groups(Four([{"told": None, "held": each} for each in held]), [])
    assert (groups.members, groups.source.partition(";")[0]) == (members, source)


@pytest.mark.parametrize(
    ("parts", "told", "summed"), [("aab", None, True), ("abc", None, True), ("abc", ("a", 0, -1, ()), False)]
)
def test_a_gradient_may_be_a_sum_over_ranks_unless_a_rank_says_it_alone_has_its_part(monkeypatch, parts, told, summed):
    held = [Shard(part=part, labels=(part,)) for part in parts]
    monkeypatch.setattr(shards._Known, "groups", Groups(held, 0, ""))
    monkeypatch.setattr(shards._Known, "told", told)
    assert shards.shares_gradients() is summed
