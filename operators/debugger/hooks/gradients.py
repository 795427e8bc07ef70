"""Reads the gradients of a call in PyNative from the nodes of MindSpore's backward graph.

Nothing is put into the network: an identity at an input would sum the gradients of its branches first and all others
later, and another order of floating-point sums gives other bits. The hook of a node gets the gradients for each of its
inputs. So the gradient of a call's input is the sum over the edges from inside the call to that input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ContextDecorator
from typing import Any, NamedTuple

import numpy as np
from mindspore import Tensor

from asd.operators.debugger.record.values import dtype_name, to_array
from asd.operators.private.backward import age_of, has_one_result, node_of, number_of

Edge = tuple[int, int]
Tell = Callable[[str, int, np.ndarray, str], None]
"""Called with `input` or `output`, the index among the inputs or outputs, the gradient and its type."""


class GradientWatch:
    """Watch over the calls of one step; its hooks run inside `quiet`."""

    def __init__(self, quiet: ContextDecorator) -> None:
        self._quiet = quiet
        self._edges: dict[int, _Node] = {}  # keeps nodes alive, so numbers stay unique

    def watch(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        begin: Callable[[], bool],
        tell: Tell,
        done: Callable[[], None],
    ) -> None:
        """Reports the gradients of one call when the backward pass reaches it.

        Args:
            inputs: Inputs of the call; only tensors count.
            outputs: Outputs of the call.
            begin: Called before the first gradient; returns whether this call is recorded.
            tell: Receives each gradient: those of the outputs are the `input` of the backward call.
            done: Called when the gradients of all inputs are known.
        """
        targets: dict[Edge, list[int]] = {}
        for place, tensor in enumerate(inputs):
            edge = self._edge(tensor)
            if edge is not None:
                targets.setdefault(edge, []).append(place)
        made = [(self._edge(tensor), place) for place, tensor in enumerate(outputs)]
        ends = {edge: place for edge, place in made if edge is not None and edge not in targets}
        consumers, used_inside = self._consumers(list(ends), targets)
        watched = _Watched(begin, tell, done, [place for _, edges in consumers for _, place in edges])
        for edge, place in ends.items():
            if edge in used_inside:
                continue  # its gradient also covers uses inside the call
            self._edges[edge[0]].node.register_prehook(self._quiet(watched.output_hook(edge[1], place)))
        for node, edges in consumers:
            node.register_hook(self._quiet(watched.input_hook(edges)))

    def clear(self) -> None:
        """Releases the backward graph of the step."""
        self._edges.clear()

    def _edge(self, tensor: Any) -> Edge | None:
        """Returns the node that made `tensor`, and the index of the result; None without a gradient."""
        node = node_of(tensor)
        if node is None:
            return None
        number = self._known(node)
        if has_one_result(node):
            return number, 0
        view = node_of(tensor.reshape(tensor.shape))  # its one edge has the index of the result
        return (number, view.next_functions[0][1]) if view is not None else None

    def _known(self, node: Any) -> int:
        number = number_of(node)
        if number not in self._edges:
            edges = [
                _Edge(index, each, (number_of(each), result))
                for index, (each, result) in enumerate(node.next_functions)
                if each is not None
            ]
            self._edges[number] = _Node(node, age_of(node), edges)
        return number

    def _consumers(
        self, ends: list[Edge], targets: dict[Edge, list[int]]
    ) -> tuple[list[tuple[Any, list[tuple[int, int]]]], set[Edge]]:
        """Returns the nodes inside the call with an edge to one of its inputs, each with `(index of the edge, input)`.

        Returns also those of `ends` that other nodes inside the call use.
        """
        oldest = max((self._edges[number].age for number, _ in targets), default=0)
        borders = {number for number, _ in targets}
        found, used_inside = [], set()
        # One node may make several outputs.
        to_visit = list(dict.fromkeys(number for number, _ in ends if targets and number not in borders))
        visited = {*to_visit, *borders}
        while to_visit:
            here = self._edges[to_visit.pop()]
            edges = [edge for edge in here.edges if edge.end in targets]
            if edges:
                found.append((here.node, edges))
            for edge in here.edges:
                used_inside.add(edge.end)
                if edge.end[0] not in visited and self._edges[self._known(edge.node)].age > oldest:
                    to_visit.append(edge.end[0])
                visited.add(edge.end[0])
        placed = [(node, _places(edges, targets)) for node, edges in found]
        return [(node, places) for node, places in placed if places], used_inside


def _places(edges: Sequence[_Edge], targets: dict[Edge, list[int]]) -> list[tuple[int, int]]:
    """Returns for each edge of a node its index, and the input to which it leads.

    A tensor that is given twice, as in `x * x`, has an edge for each place. If the number of edges differs, they cannot
    be assigned to inputs, and none is recorded.
    """
    counts = Counter(edge.end for edge in edges)
    left = {end: list(places) for end, places in targets.items() if len(places) == counts[end]}
    sole = {end: places[0] for end, places in targets.items() if len(places) == 1}
    ours = [edge for edge in edges if edge.end in sole or edge.end in left]
    return [(edge.at, sole[edge.end] if edge.end in sole else left[edge.end].pop(0)) for edge in ours]


class _Edge(NamedTuple):
    at: int
    node: Any
    end: Edge


class _Node(NamedTuple):
    node: Any
    age: int
    edges: list[_Edge]


class _Watched:
    """A watched call; `left` has the index of an input once for each edge that leads to it."""

    def __init__(self, begin: Callable[[], bool], tell: Tell, done: Callable[[], None], left: list[int]) -> None:
        self._begin, self._tell, self._done = begin, tell, done
        self._wanted: bool | None = None
        self._left = Counter(left)
        self._sums: dict[int, np.ndarray] = {}

    def output_hook(self, result: int, place: int) -> Callable[[Any], None]:
        """Returns the hook of the node that made an output: its gradient is complete."""

        def hook(gradients: Any) -> None:
            gradient = gradients[result] if result < len(gradients) else None
            if self._is_wanted() and isinstance(gradient, Tensor):
                self._tell("input", place, to_array(gradient), dtype_name(gradient))
            self._end()

        return hook

    def input_hook(self, edges: list[tuple[int, int]]) -> Callable[[Any, Any], None]:
        """Returns the hook of a node inside the call that passes gradients to the call's inputs."""

        def hook(handed: Any, _: Any) -> None:
            for index, place in edges:
                self._left[place] -= 1
                if self._is_wanted() and isinstance(handed[index], Tensor):
                    self._add(place, handed[index])
            self._end()

        return hook

    def _is_wanted(self) -> bool:
        if self._wanted is None:
            self._wanted = self._begin()
        return self._wanted

    def _add(self, place: int, gradient: Tensor) -> None:
        array = to_array(gradient)
        if place in self._sums:
            with np.errstate(all="ignore"):
                array = self._sums.pop(place) + array
        if self._left[place] == 0:
            self._tell("output", place, array, dtype_name(gradient))
        else:
            self._sums[place] = array.copy()  # MindSpore may add the next branch's gradient in place

    def _end(self) -> None:
        if self._wanted and not any(self._left.values()):
            self._done()
