"""HTML page of a comparison: the network as a tree, open where the runs part, folded where they are alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from asd.dumps.compare.comparison import UNMATCHED, CallRows, ComparedRow
from asd.dumps.compare.first_difference import Answer, Divergence
from asd.dumps.compare.runs import Pair
from asd.dumps.formats.slots import split_name
from asd.errors import how_many
from asd.exporters.pictures.markup import Html, name, number, tag
from asd.exporters.report.document import document
from asd.exporters.report.sections import section
from asd.exporters.report.tables import Row, note, table

_MOST_CALLS = 400  # calls that differ with all their rows; of further ones the page has the names
_MOST_NAMES = 4000
_DEEPEST = 50  # modules within one another that the tree shows
_TONES = {
    Answer.WRONG_OPERATOR: ("bad", "✖", "An operator computed wrongly"),
    Answer.ASKED_DIFFERENTLY: ("warn", "!", "The runs were asked for different things"),
    Answer.CANNOT_TELL: ("unknown", "?", "It can't be told why the runs part"),
    Answer.DO_NOT_PART: ("good", "✔", "The runs do not part"),
}
_ALIKE = ("Yes", "pass", "None")
_HEADS = ("row", "type, shape", "run under test: max, min, mean, norm", "trusted run", "difference", "bound", "result")


@dataclass
class _Node:
    """Module of the network, or the root."""

    name: str  # its name within its parent
    parts: dict[str, _Node] = field(default_factory=dict)  # modules inside, by name
    calls: list[CallRows] = field(default_factory=list)  # its calls that differ, in the order of execution
    count: int = 0  # all calls in it and below
    differing: int = 0  # those of them that differ
    has_first: bool = False  # whether the first difference is in it or below


def render(pair: Pair, calls: Sequence[CallRows], parents: Mapping[str, str | None], sentence: str) -> str:
    """Returns the page of one rank of one step.

    Args:
        pair: What was found.
        calls: All calls that were compared, in the order of execution.
        parents: The module around each call, from construct.json; empty where there is none.
        sentence: The answer in words.
    """
    tone, icon, title = _TONES[pair.answer]
    banner = [
        tag("p", tag("span", icon, class_="icon", aria_hidden="true"), f" {title}", class_="tone"),
        tag("p", sentence, class_="lead"),
    ]
    verdicts = ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(pair.verdicts.items()))
    facts = f"{how_many(pair.calls, 'call')}, {how_many(pair.rows, 'row')} ({verdicts}), compared by {pair.mode}"
    found = pair.divergence
    first = next((call for call in calls if found is not None and found.call == call.name), None)
    return document(
        f"{title}: {pair.where or 'comparison'}",
        [
            tag("header", tag("h1", "Comparison of two runs ", tag("span", pair.where, class_="name"))),
            tag("section", [*banner, *note(facts)], class_=f"verdict {tone}"),
            section("first", "Where they part first", _first(found, first)),
            section("tree", "The network", _tree(calls, parents, found)),
        ],
    )


def _first(found: Divergence | None, call: CallRows | None) -> list[Html]:
    if found is None:
        return note("They part nowhere.")
    bits = "" if found.difference is None else f"It differs in {found.difference.words}."
    said = f"{found.agreeing:,} calls before it agree, by {found.basis}. {bits}"
    return [tag("h3", name(found.call)), *note(said), *(_rows(call, found) if call is not None else [])]


def _rows(call: CallRows, found: Divergence | None) -> list[Html]:
    rows = [Row(_cells(row), "struck" if found is not None and _name(row) in found.rows else "") for row in call.rows]
    return table(_HEADS, rows, opened=60)


def _name(row: ComparedRow) -> str:
    return row.name if row.tested is not None else row.trusted_name


def _cells(row: ComparedRow) -> list[str | float | None]:
    slot = row.tested or row.trusted
    kind = "" if slot is None else f"{slot.dtype} {list(slot.shape) if slot.scalar is None else ''}"
    sides = [
        "-" if each is None else each.scalar or each.md5 or ", ".join(map(_value, each.values))
        for each in (row.tested, row.trusted)
    ]
    result = row.verdict + (f": {row.message}" if row.message else "")
    return [
        _name(row),
        kind,
        *sides,
        *(each if each is not None else "" for each in (row.difference, row.bound)),
        result,
    ]


def _value(value: object) -> str:
    return number(value) if isinstance(value, (int, float)) else "-"


def _tree(calls: Sequence[CallRows], parents: Mapping[str, str | None], found: Divergence | None) -> list[Html]:
    root = _Node("")
    for call in calls:
        differs = any(map(_differs, call.rows))
        is_first = found is not None and call.name == found.call
        node = root
        for part in ["", *_modules(call.name, parents)]:
            node = node.parts.setdefault(part, _Node(part)) if part else node
            node.count += 1
            node.differing += differs or is_first
            node.has_first |= is_first
        if differs or is_first:
            node.calls.append(call)
    budget = [_MOST_CALLS, _MOST_NAMES]
    return [tag("ul", _items(root, found, budget), class_="tree")]


def _differs(row: ComparedRow) -> bool:
    explained = row.difference is not None and row.bound is not None and row.difference <= row.bound
    return row.verdict not in _ALIKE or (row.same is False and not explained)


def _modules(call: str, parents: Mapping[str, str | None]) -> list[str]:
    """Returns the modules around a call, from the outermost on; its own for that of a module."""
    for _ in range(_DEEPEST):  # a foreign file may lead in circles
        base = split_name(call)[0].split(".")
        if base[0] in ("Cell", "Module"):
            return (base[1:-1] or base[1:])[:_DEEPEST]
        if not (call := parents.get(call) or ""):
            break
    return []


def _items(node: _Node, found: Divergence | None, budget: list[int]) -> Iterable[Html]:
    for part in node.parts.values():
        words = f" {how_many(part.count, 'call')}, {f'{part.differing:,} differ' if part.differing else 'alike'}"
        told, budget[1] = tag("span", words, class_="note"), budget[1] - 1
        if not part.differing or (budget[1] < 0 and not part.has_first):
            yield tag("li", name(part.name), told, class_="differs" if part.differing else None)
            continue
        title = tag("summary", name(part.name), told)
        inside = tag("ul", _items(part, found, budget))
        kind, opened = ("first", "") if part.has_first else ("differs", None)
        yield tag("li", tag("details", title, inside, open=opened), class_=kind)
    left = 0
    for call in node.calls:
        is_first = found is not None and call.name == found.call
        only = all(row.verdict == UNMATCHED for row in call.rows)
        has_rows = is_first or budget[0] > 0
        budget[0 if has_rows else 1] -= 1
        if budget[1] < 0 and not has_rows:
            left += 1
        elif not has_rows:
            yield tag("li", name(call.name), class_="differs")
        else:
            title = tag("summary", name(call.name), tag("span", " on one side only" if only else "", class_="note"))
            kind, opened = ("first", "") if is_first else ("differs", None)
            yield tag("li", tag("details", title, _rows(call, found), open=opened), class_=kind)
    if left:
        yield tag("li", tag("span", f"and {left:,} more that differ", class_="note"))
