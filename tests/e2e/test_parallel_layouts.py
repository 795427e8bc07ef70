"""Four real ranks with different parts of a network: the rank at fault is named, and nothing is left of the fault."""

import json

import pytest

WHOLE = "this rank holds the whole network, same as ranks {}: they began with the same weights"
GROUPS = {
    "tensor": [f"this rank holds shard {rank % 2}, same as rank {rank ^ 2}: told by tell_shard" for rank in range(4)],
    "pipeline": [
        f"this rank holds stage {rank // 2} of 2, shard 0, same as rank {rank ^ 1}: told by tell_shard"
        for rank in range(4)
    ],
    "optimizer": [WHOLE.format(", ".join(str(other) for other in range(4) if other != rank)) for rank in range(4)],
}

UNNAMED = {"tensor": [1, 6], "pipeline": [0, 1, 6, 7], "optimizer": []}
"""Faults that others saw alike: another part of the layer, or the last stage before an earlier one."""


def train(runner, mode, layout, faults, seed):
    """What each rank told."""
    words = (mode, layout, str(faults), str(seed))
    done, logs = runner.ranks("parallel_layouts.py", *words, count=4, timeout=60 + 60 * faults)
    assert done.code == 0, done
    return [json.loads(line[7:]) for log in logs for line in log.splitlines() if line[:7] == "LAYOUT "]


def check(ranks, layout):
    """That of each fault the right rank is named, by all, or nobody, and that all is as it would be without."""
    assert [rank["protections"]["on"]["groups"] for rank in ranks] == GROUPS[layout]
    assert {name for rank in ranks for name in rank["protections"]["missing"]} <= {"probe"}  # a CPU lacks bfloat16
    assert [rank["healthy"] + rank["between"] + rank["problems"] for rank in ranks] == [[]] * 4
    unnamed = []
    for number, faults in enumerate(zip(*(rank["found"] for rank in ranks), strict=True)):
        victim, lasts = faults[0]["rank"], faults[0]["lasts"]
        assert faults[victim]["struck"]
        first = {(event[0], event[2]) for fault in faults for event in fault["events"] if event[1] == "ERROR"}
        named = {rank for kind, rank in first if kind == "anomaly"}
        if named == {-1}:
            unnamed.append(number)
        else:
            assert named == {victim}
        assert all(any(event[4] for event in fault["events"]) == lasts for fault in faults)  # healed, or refused
        assert all(fault["same"] for fault in faults)
        verdicts = [event[3] for fault in faults for event in fault["events"] if event[0] == "replay"]
        assert verdicts == ["undetermined" if named == {-1} else "persistent" if lasts else "transient"]
        assert all(fault["refused"] == lasts for fault in faults)
    assert unnamed == UNNAMED[layout]


@pytest.mark.slow
@pytest.mark.parametrize("layout", GROUPS)
@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_fault_is_named_where_it_began_and_the_step_is_healed_on_all_ranks(runner, mode, layout):
    check(train(runner, mode, layout, 8, 2), layout)
