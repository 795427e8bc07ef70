"""In which order the calls of a dump were computed: a file may hold them in another.

Other tools note a module's gradients of parameters before its calls, and a module before the calls inside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from asd.dumps.formats.slots import split_name

__all__ = ["computed_order"]


def computed_order(names: Iterable[str], parents: Mapping[str, str | None] | None = None) -> list[str]:
    """The names as they were computed: each as early as the file has it, but not before what it is computed from.

    A backward call comes after its forward call, and a module after the calls inside it. The gradients of a module's
    parameters come after its backward calls; where the dump has none of those, after everything else.

    Args:
        names: In the order of the file.
        parents: The module around each call, where that is known.

    >>> computed_order(["Cell.a.Dense.parameters_grad.0", "Cell.a.Dense.backward.0", "Cell.a.Dense.forward.0"])
    ['Cell.a.Dense.forward.0', 'Cell.a.Dense.backward.0', 'Cell.a.Dense.parameters_grad.0']
    """
    names = list(names)
    known = _by_call(names)
    inside: dict[str | None, list[str]] = defaultdict(list)
    for name in names:
        inside[(parents or {}).get(name)].append(name)
    order: list[str] = []
    last: list[str] = []
    missing: dict[str, int] = {}
    waiting: dict[str, list[str]] = defaultdict(list)
    done: set[str] = set()
    for name in names:
        needs = _needs(name, known)
        if needs is None:
            last.append(name)
            continue
        left = [need for need in (*inside.get(name, ()), *needs) if need not in done]
        missing[name] = len(left)
        for need in left:
            waiting[need].append(name)
        ready = [] if left else [name]
        while ready:
            here = ready.pop()
            order.append(here)
            done.add(here)
            for next_ in reversed(waiting.pop(here, [])):
                missing[next_] -= 1
                if not missing[next_]:
                    ready.append(next_)
    # Only a file that contradicts itself has more: calls that are inside one another.
    return [*order, *(name for name in missing if name not in done), *last]


def _by_call(names: Iterable[str]) -> dict[tuple[str, str], dict[int, str]]:
    """The names by base and direction, and by count."""
    known: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    for name in names:
        base, direction, count = split_name(name)
        known[base, direction][int(count or 0)] = name
    return known


def _needs(name: str, known: dict[tuple[str, str], dict[int, str]]) -> list[str] | None:
    """What a call is computed from; None for gradients of parameters that come from nothing in the dump."""
    base, direction, count = split_name(name)
    if direction == "backward":
        forward = known.get((base, "forward"), {}).get(int(count or 0))
        return [] if forward is None else [forward]
    if direction != "parameters_grad":
        return []
    backward = known.get((base, "backward"), {})
    if not backward:
        return None
    # A module that is called several times has one gradient of all its calls, or one of each pass.
    gradients = sorted(known[base, direction])
    place, calls = gradients.index(int(count or 0)), sorted(backward)
    first = min(place * len(calls) // len(gradients), len(calls) - 1)
    end = max((place + 1) * len(calls) // len(gradients), first + 1)
    return [backward[call] for call in calls[first:end]]
