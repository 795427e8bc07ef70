"""The modules of a network as the names of a dump tell them, and how two such trees lie on each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from asd.dumps.formats.dump_folder import Dump
from asd.dumps.formats.slots import Entry, split_name

__all__ = ["ModuleTree", "pair_by_structure"]

_PREFIXES = ("Cell.", "Module.")
_TOP, _OLD_TOP = "TopLayer", "Cell"


class ModuleTree:
    """The tree of one dump.

    Args:
        dump: Its names, and the parents in construct.json, make the tree.
    """

    def __init__(self, dump: Dump) -> None:
        self._parents = dump.parents
        self._classes: dict[str, str] = {"": _TOP}
        self._paths: dict[str, str] = {}
        self.children: dict[str, dict[str, None]] = {"": {}}
        self._forward: dict[str, Entry] = {}
        for name in (*dump.parents, *dump.entries):
            self._add(name)
        for name, entry in dump.entries.items():
            if name in self._paths and split_name(name)[1] == "forward":
                self._forward.setdefault(self._paths[name], entry)

    def _add(self, name: str) -> None:
        if not name.startswith(_PREFIXES) or name in self._paths:
            return
        base = split_name(name)[0].partition(".")[2]
        path, _, kind = base.rpartition(".")
        self._paths[name] = path
        self._classes.setdefault(path, kind)
        above = ""
        for part in path.split(".") if path else []:
            here = f"{above}.{part}" if above else part
            self.children.setdefault(above, {}).setdefault(here)
            self.children.setdefault(here, {})
            above = here

    def path_of(self, name: str) -> str | None:
        """The path of a module's call; None for an API's."""
        return self._paths.get(name)

    def parent_path(self, name: str) -> str:
        """The path of the module that an API was called in; empty when it is not known."""
        return self._paths.get(self._parents.get(name) or "", "")

    def class_of(self, path: str) -> str:
        """The class of the module there; empty for a container that is never called."""
        return self._classes.get(path, "")

    def signature(self, path: str) -> tuple[object, ...]:
        """What a module looks like from outside: shapes of its outputs and parameters, number of modules in it."""
        entry = self._forward.get(path)
        shapes = [] if entry is None else sorted(
            (slot.state, slot.shape) for slot in entry.slots if slot.state in ("output", "parameters")
        )  # fmt: skip
        return (*shapes, len(list(self.below(path))))

    def below(self, path: str) -> Iterator[str]:
        """Every path under one, parents first."""
        waiting = [*reversed(self.children.get(path, {}))]
        while waiting:
            here = waiting.pop()
            yield here
            waiting += reversed(self.children[here])

    def map_paths(self, mapping: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        """Where each path lies in the other network, by a layer mapping.

        At each module the section of its class is looked up; in it the longest dotted key goes first, and a name
        without a key stays. What follows `(` in a target is left out.
        """
        return {path: ".".join(self._mapped(path.split("."), mapping)) for path in self.below("")}

    def _mapped(self, parts: list[str], mapping: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
        at = 0
        while at < len(parts):
            here = ".".join(parts[:at])
            section = mapping.get(self.class_of(here), {})
            if not here and not section:
                section = mapping.get(_OLD_TOP, {})
            for end in range(len(parts), at, -1):
                target = section.get(".".join(parts[at:end]))
                if target is not None:
                    yield target.partition("(")[0].strip()
                    at = end
                    break
            else:
                yield parts[at]
                at += 1


def pair_by_structure(ours: ModuleTree, theirs: ModuleTree) -> dict[str, str]:
    """Where each path of one network lies in the other, found without a mapping.

    Wrappers around the whole network are passed over so that most paths agree. Then, from the top: children of the same
    name belong together; of those left over, children that look alike from outside, in their order; last, a single one
    left on both sides.
    """
    top, other = max(
        ((a, b) for a in _wrappers(ours) for b in _wrappers(theirs)),
        key=lambda pair: (_shared(ours, theirs, *pair), -pair[0].count(".") - pair[1].count(".")),
    )
    found = {top: other} if top or other else {}
    _pair_children(ours, theirs, top, other, found)
    return found


def _wrappers(tree: ModuleTree) -> list[str]:
    chain = [""]
    while len(tree.children[chain[-1]]) == 1:
        chain.append(next(iter(tree.children[chain[-1]])))
    return chain


def _shared(ours: ModuleTree, theirs: ModuleTree, top: str, other: str) -> int:
    left, right = (
        {path[len(root) :].lstrip(".") for path in tree.below(root)} for tree, root in ((ours, top), (theirs, other))
    )
    return len(left & right)


def _pair_children(ours: ModuleTree, theirs: ModuleTree, top: str, other: str, found: dict[str, str]) -> None:
    waiting = [(top, other)]
    while waiting:
        here, there = waiting.pop()
        pairs = _paired(ours, theirs, here, there)
        found.update(pairs)
        waiting += pairs


def _paired(ours: ModuleTree, theirs: ModuleTree, here: str, there: str) -> list[tuple[str, str]]:
    left, right = list(ours.children[here]), list(theirs.children[there])
    by_name = {path.rpartition(".")[2]: path for path in right}
    pairs = [(path, by_name[name]) for path in left if (name := path.rpartition(".")[2]) in by_name]
    left = [path for path in left if path not in dict(pairs)]
    right = [path for path in right if path not in {b for _, b in pairs}]
    for path in list(left):
        alike = next((b for b in right if theirs.signature(b) == ours.signature(path)), None)
        if alike is not None:
            pairs.append((path, alike))
            left.remove(path)
            right.remove(alike)
    return [*pairs, *zip(left, right, strict=False)] if len(left) == len(right) == 1 else pairs
