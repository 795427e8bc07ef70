"""Two sequences of calls aligned: patience difference on keys that occur once, then the standard library's between."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher

_MOST = 100_000_000
"""Pairs of keys that the standard library's matcher may have to look at: it takes the square of a long sequence."""

Pairs = list[tuple[int, int]]


def align(ours: Sequence[Sequence[Hashable]], theirs: Sequence[Sequence[Hashable]]) -> tuple[Pairs, Pairs]:
    """Returns the places of both sides that belong together, and those of them that stand in another order.

    Args:
        ours: A list of keys each time; a later list says less of each call than an earlier one.
        theirs: Those of the other side.

    Returns:
        The pairs in the order of `ours`, and the pairs among them that cross others.

    >>> align(["xaab"], ["aab"])
    ([(1, 0), (2, 1), (3, 2)], [])
    >>> align(["xyz"], ["yxz"])
    ([(0, 1), (1, 0), (2, 2)], [(0, 1)])
    """
    whole = (0, len(ours[0]), 0, len(theirs[0]))
    kept: Pairs = []
    crossed: Pairs = []
    gaps = [whole]
    for level, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        left: list[tuple[int, int, int, int]] = []
        for gap in gaps:
            found = list(_common(mine, other, gap, last=level == len(ours) - 1))
            kept += found
            left += _between(found, gap)
        gaps = left
        crossed += _crossing(mine, other, kept + crossed)
    used = {a for a, _ in crossed}, {b for _, b in crossed}
    kept = [pair for pair in kept if pair[0] not in used[0] and pair[1] not in used[1]]
    return sorted(kept + crossed), sorted(crossed)


def _common(
    mine: Sequence[Hashable], other: Sequence[Hashable], gap: tuple[int, ...], *, last: bool
) -> Iterator[tuple[int, int]]:
    a, a_end, b, b_end = gap
    while a < a_end and b < b_end and mine[a] == other[b]:
        yield a, b
        a, b = a + 1, b + 1
    tail = 0
    while a < a_end - tail and b < b_end - tail and mine[a_end - tail - 1] == other[b_end - tail - 1]:
        tail += 1
        yield a_end - tail, b_end - tail
    a_end, b_end = a_end - tail, b_end - tail
    once = [{key for key, count in Counter(keys).items() if count == 1} for keys in (mine[a:a_end], other[b:b_end])]
    both = once[0] & once[1]
    places = {key: at for at, key in enumerate(other[b:b_end], b) if key in both}
    anchors = list(_rising([(at, places[key]) for at, key in enumerate(mine[a:a_end], a) if key in places]))
    if not last:
        yield from anchors
        return
    for left, left_end, right, right_end in _between(anchors, (a, a_end, b, b_end)):
        if (left_end - left) * (right_end - right) > _MOST:
            continue
        matcher = SequenceMatcher(None, mine[left:left_end], other[right:right_end], autojunk=False)
        for start, start_b, size in matcher.get_matching_blocks():
            yield from ((left + start + i, right + start_b + i) for i in range(size))
    yield from anchors


def _rising(pairs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Returns the longest run of pairs that rise on both sides, from the last on."""
    tops: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for at, (_, b) in enumerate(pairs):
        place = bisect_left(tops, b)
        tops[place : place + 1], ends[place : place + 1] = [b], [at]
        before.append(ends[place - 1] if place else -1)
    at = ends[-1] if ends else -1
    while at >= 0:
        yield pairs[at]
        at = before[at]


def _between(found: Sequence[tuple[int, int]], gap: tuple[int, int, int, int]) -> Iterator[tuple[int, int, int, int]]:
    """Returns the parts of a gap around the pairs in it."""
    a, a_end, b, b_end = gap
    for left, right in [*sorted(found), (a_end, b_end)]:
        if left > a or right > b:
            yield a, left, b, right
        a, b = left + 1, right + 1


def _crossing(mine: Sequence[Hashable], other: Sequence[Hashable], paired: Pairs) -> Pairs:
    """Calls without a partner whose key is left once on either side: the order of the two sides differs there."""
    ours, theirs = {a for a, _ in paired}, {b for _, b in paired}
    left = {at: key for at, key in enumerate(mine) if at not in ours}
    right = {at: key for at, key in enumerate(other) if at not in theirs}
    counts, others = Counter(left.values()), Counter(right.values())
    places = {key: at for at, key in right.items() if others[key] == 1}
    return [(at, places[key]) for at, key in left.items() if counts[key] == 1 and key in places]
