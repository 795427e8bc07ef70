"""How many bytes of gradients a compiled step holds at once, in the order in which MindSpore runs operators.

By default that order is breadth first: an operator comes when all that it reads is there. Updates are chained in the
order of the parameters, and the gradient of the first parameter is the last to be made.
"""

import re
from collections import Counter, deque
from typing import NamedTuple

UPDATE = "AdamWeightDecay"
_NODE = re.compile(r"^  %(\d+)\([^)]*\) = (?:Prim\w*?_)?([%\w.@]+)(.*)$")
_TENSOR = re.compile(r"Tensor\[(\w+)\]\]?, \(([\d, ]*)\)")
_PASSED_ON = {"Load", "Depend", "MakeTuple", "TupleGetItem", "Reshape"}
_NO_TENSOR = {"UpdateState", UPDATE}
_BYTES = {"BFloat16": 2, "Float16": 2, "Float32": 4}
_SCALAR = 16  # bytes; an update's learning rate and the like


class _Node(NamedTuple):
    operator: str
    reads: frozenset[int]
    result: str


class Held(NamedTuple):
    """Bytes of the gradients that updates read.

    Attributes:
        all: Of all of them.
        at_once: Of those that exist at the same time, at most.
    """

    all: int
    at_once: int


def held_gradients(text: str) -> Held:
    """Those of a graph that MindSpore wrote, all of whose updates are in its first function; else zeros."""
    nodes = _nodes(text)
    sources: dict[int, frozenset[int]] = {}
    order = _breadth_first(nodes)
    last: dict[int, int] = {}
    read = set[int]()
    for at, number in enumerate(order):
        node = nodes[number]
        come_from = frozenset().union(*(sources[each] for each in node.reads))
        last |= dict.fromkeys(come_from, at)
        own = () if node.operator in _NO_TENSOR else (number,)
        sources[number] = come_from if node.operator in _PASSED_ON else frozenset(own)
        read |= come_from if node.operator == UPDATE else set()
    sizes = {each: size for each in read if (size := _size(nodes[each].result)) > _SCALAR}
    ends = Counter[int]()
    for each, size in sizes.items():
        ends[last[each]] += size
    held = most = 0
    for at, number in enumerate(order):
        held += sizes.get(number, 0)
        most = max(most, held)
        held -= ends[at]
    return Held(sum(sizes.values()), most)


def _nodes(text: str) -> dict[int, _Node]:
    entry = re.search(r"# IR entry: @(\S+)", text)
    body = text[text.index(f"subgraph @{entry[1]}(") :].partition("\n}")[0] if entry else ""
    nodes: dict[int, _Node] = {}
    for line in body.splitlines():
        if found := _NODE.match(line):
            operands = re.split(r" (?:primitive_attrs|cnode_attrs|\{)", found[3])[0]
            number = int(found[1])
            nodes[number] = _Node(found[2], frozenset(map(int, re.findall(r"%(\d+)(?!\()", operands))), "")
        elif nodes and line.startswith("      : (") and not nodes[number].result:
            nodes[number] = nodes[number]._replace(result=line.rpartition("-> ")[2])
    return nodes


def _breadth_first(nodes: dict[int, _Node]) -> list[int]:
    waits = {number: len(node.reads) for number, node in nodes.items()}
    users: dict[int, list[int]] = {number: [] for number in nodes}
    for number, node in nodes.items():
        for each in node.reads:
            users[each].append(number)
    ready, order = deque(number for number, count in waits.items() if not count), []
    while ready:
        order.append(ready.popleft())
        for user in users[order[-1]]:
            waits[user] -= 1
            if not waits[user]:
                ready.append(user)
    return order


def _size(result: str) -> int:
    total = 0
    for kind, shape in _TENSOR.findall(result):
        size = _BYTES.get(kind, 0)
        for extent in filter(None, shape.replace(" ", "").split(",")):
            size *= int(extent)
        total += size
    return total
