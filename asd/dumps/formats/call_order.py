"""In which order the calls of a dump were computed: a file may hold them in another.

Other tools note a module's gradients of parameters before its calls, and a module before the calls inside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from asd.dumps.formats.slots import split_name

__all__ = ["computed_order"]


def computed_order(names: Iterable[str], parents: Mapping[str, str | None] | None = None) -> list[str]:
    """The names as they were computed: a module after the calls inside it, gradients of parameters at the end.

    Args:
        names: In the order of the file.
        parents: The module around each call, where that is known.

    >>> computed_order(["Cell.a.A.parameters_grad.0", "Cell.a.A.forward.0", "Mint.add.0.forward"],
    ...                {"Mint.add.0.forward": "Cell.a.A.forward.0"})
    ['Mint.add.0.forward', 'Cell.a.A.forward.0', 'Cell.a.A.parameters_grad.0']
    """
    around = parents or {}
    calls = {name: split_name(name)[1] == "parameters_grad" for name in names}
    inside = Counter(around.get(name) for name in calls)
    order: list[str] = []
    waiting: dict[str, None] = {}
    for name, is_gradient in calls.items():
        waiting[name] = None
        here: str | None = None if is_gradient else name
        while here in waiting and not inside[here]:
            assert here is not None
            order.append(here)
            del waiting[here]
            here = around.get(here)
            inside[here] -= 1
    return [*order, *waiting]  # calls that are inside one another wait for ever
