"""Which call of one run belongs to which of the other, and which slot to which.

Calls of one framework are aligned by what they are, what they are given and where they are called, so one call more on
one side shifts nothing. Between MindSpore and PyTorch modules of equal paths belong together, an API by its name in its
module, parameters by their usual names in both. A layer mapping says which layers have other names.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asd.dumps.compare.alignment import align
from asd.dumps.formats.dump_folder import Dump
from asd.dumps.formats.json_file import open_text
from asd.dumps.formats.slots import Entry, Slot, split_name
from asd.errors import ConfigError, UnsupportedError

_LARGEST_MAPPING = 1 << 24

_PARAMETER_NAMES = {
    "gamma": "weight",
    "beta": "bias",
    "embedding_table": "weight",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
"""Names of parameters in MindSpore, and what PyTorch calls them."""
_PREFIXES = ("Cell.", "Module.")
_TOP, _OLD_TOP = "TopLayer", "Cell"


@dataclass
class Matching:
    """The pairs."""

    calls: dict[str, str]  # the name of a call in the run under test, and its name in the trusted run
    # A slot's suffix under the names of the trusted run, given the call and the suffix
    rename: Callable[[str, str], str] = lambda _, suffix: suffix
    # by the name of a call, the suffixes of outputs that stand in another order in the trusted run
    turned: dict[str, dict[str, str]] = field(default_factory=dict)
    moved: frozenset[str] = frozenset()  # calls of the run under test that stand in another order in the trusted run

    def in_order(self, tested: Dump, trusted: Dump) -> Iterator[tuple[Entry | None, Entry | None]]:
        """Returns all calls in the order of the run under test; those of only the trusted run are inserted."""
        used = set(self.calls.values())
        rest = iter([*trusted.entries.values()])
        done: set[str] = set()
        for name, entry in tested.entries.items():
            partner = self.calls.get(name)
            if partner is not None and partner not in done:
                for other in rest:
                    done.add(other.name)
                    if other.name == partner:
                        break
                    if other.name not in used:
                        yield None, other
            yield entry, trusted.entries.get(partner or "")
        yield from ((None, other) for other in rest if other.name not in used)

    def partners(self, tested: Entry, trusted: Entry | None) -> list[tuple[Slot, Slot | None]]:
        """Returns the slots of a call, each with its partner or None."""
        theirs = {} if trusted is None else {slot.suffix: slot for slot in trusted.slots}
        found = []
        turned = self.turned.get(tested.name)
        for slot in tested.slots:
            if turned is not None and slot.state == "output":
                found.append((slot, theirs.get(turned.get(slot.suffix, ""))))
                continue
            partner = theirs.get(self.rename(tested.name, slot.suffix)) or theirs.get(slot.suffix)
            found.append((slot, partner))
        return found


def match_with(tested: Dump, trusted: Dump, layer: Path | None) -> Matching:
    """Returns the pairs of two dumps.

    Args:
        tested: The run under test.
        trusted: The trusted run.
        layer: A yaml file: class of layer, then `name in MindSpore: name in PyTorch`; `TopLayer` at the top. None: what
            matches by itself.
    """
    if layer is None:
        return _match_names(tested, trusted)
    matching = _match_by_place(tested, trusted, _sections(layer, _read_yaml(layer)))
    if not matching.calls:
        raise ConfigError("the layer mapping", str(layer), "no call of one dump meets one of the other through it")
    return matching


def _read_yaml(path: Path) -> Any:
    """Returns the content of a YAML file; no tag in it makes an object."""
    try:
        import yaml
    except ModuleNotFoundError:
        raise UnsupportedError(
            f"{path} needs PyYAML, which is not installed; install it with the extra: mindspore-asd[compare]."
        ) from None
    with open_text(path) as file:
        content = file.read(_LARGEST_MAPPING + 1)
    if len(content) > _LARGEST_MAPPING:
        raise ConfigError("the mapping file", str(path), f"at most {_LARGEST_MAPPING} characters")
    try:
        return yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        raise ConfigError("the mapping file", str(path), f"YAML is needed{where}") from None


def _sections(path: Path, found: Any) -> dict[str, dict[str, str]]:
    valid = "sections with `name: name` in them are needed"
    if not isinstance(found, dict):
        raise ConfigError("the mapping file", str(path), valid)
    result: dict[str, dict[str, str]] = {}
    for section, names in found.items():
        if names is not None and not isinstance(names, dict):
            raise ConfigError("the mapping file", str(path), f"the section {section!r} is not valid: {valid}")
        for key, value in (names or {}).items():
            if isinstance(value, (dict, list)) or value is None:
                raise ConfigError("the mapping file", str(path), f"{key!r} has no name on its right: {valid}")
        result[str(section)] = {str(key): str(value) for key, value in (names or {}).items()}
    return result


def _rename_parameter(_: str, suffix: str) -> str:
    """Returns the suffix with the parameter's name that PyTorch uses.

    >>> _rename_parameter("", "parameters.gamma")
    'parameters.weight'
    """
    head, dot, last = suffix.rpartition(".")
    return f"{head}{dot}{_PARAMETER_NAMES.get(last, last)}"


def _match_names(tested: Dump, trusted: Dump) -> Matching:
    """Matches equal names; between the two frameworks also by place."""
    if tested.framework == trusted.framework or "" in (tested.framework, trusted.framework):
        calls, moved = _aligned(tested, trusted)
        return Matching(calls, turned=_turned(tested, trusted, calls), moved=moved)
    return _match_by_place(tested, trusted, {})


def _aligned(tested: Dump, trusted: Dump) -> tuple[dict[str, str], frozenset[str]]:
    """Returns pairs of calls, and the pairs whose order differs; a backward call is paired like its forward call."""
    if tested.tool != trusted.tool:  # each records calls that the other does not
        return {name: name for name in tested.entries if name in trusted.entries}, frozenset()
    heads, keys = [], []
    for dump in (tested, trusted):
        heads.append([name for name in dump.entries if (of := forward_of(name)) == name or of not in dump.entries])
        keys.append((array("q"), array("q")))  # far smaller than lists
        for name in heads[-1]:
            for column, key in zip(keys[-1], _key(dump, name), strict=True):
                column.append(key)
    pairs, crossed = align(*keys)
    calls = {heads[0][a]: heads[1][b] for a, b in pairs}
    follows = {(of, split_name(name)[1]): name for name in trusted.entries if (of := forward_of(name)) != name}
    found = {}
    for name in tested.entries:
        partner = calls.get(name) or follows.get((calls.get(forward_of(name), ""), split_name(name)[1]))
        if partner is not None:
            found[name] = partner
    return found, frozenset(heads[0][a] for a, _ in crossed)


def forward_of(name: str) -> str:
    """Returns the name of the forward call that a call belongs to.

    >>> forward_of("Mint.add.0.backward"), forward_of("Cell.a.Dense.parameters_grad.1")
    ('Mint.add.0.forward', 'Cell.a.Dense.forward.1')
    """
    base, direction, count = split_name(name)
    if direction not in ("backward", "parameters_grad"):
        return name
    return f"{base}.forward.{count}" if name.endswith(f".{direction}.{count}") else f"{base}.{count}.forward"


def _key(dump: Dump, name: str) -> tuple[int, int]:
    """Returns two keys of a call: its kind with its inputs, and its kind with its place."""
    base, direction, _ = split_name(name)
    what = (base, direction, split_name(dump.parents.get(name) or "")[0])
    given = [slot for slot in dump.entries[name].slots if slot.state in ("input", "parameters")]
    prints = tuple(slot.scalar or fingerprint(slot) for slot in given)
    known = prints and None not in prints
    return hash((base, direction, prints) if known else (what, prints)), hash(what)  # of very many calls


def fingerprint(slot: Slot | None) -> int | None:
    """Returns a hash that identifies a tensor; None when it could be one of many."""
    if slot is None or slot.scalar is not None:
        return None
    values = slot.values
    if values[0] is None:
        return hash((slot.shape, slot.md5)) if slot.md5 else None
    return None if values[0] == values[1] else hash((slot.shape, slot.md5 or slot.packed))


def _turned(tested: Dump, trusted: Dump, calls: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Gradients of an operator's inputs: msprobe lists them from the last to the first, without those there are not."""
    if tested.tool == trusted.tool:
        return {}
    found = {}
    for name, partner in calls.items():
        if name.startswith("Primitive.") and name.endswith(".backward"):
            ours, theirs = (
                [slot for slot in entry.slots if slot.state == "output" and slot.scalar is None]
                for entry in (tested.entries[name], trusted.entries[partner])
            )
            if _are_turned(ours, theirs):
                found[name] = {mine.suffix: its.suffix for mine, its in zip(ours, reversed(theirs), strict=True)}
    return found


def _are_turned(ours: list[Slot], theirs: list[Slot]) -> bool:
    """Returns whether the other list fits in reverse order; where both orders fit, the statistics decide."""
    turned = theirs[::-1]
    if [slot.shape for slot in ours] != [slot.shape for slot in turned]:
        return False
    return [slot.shape for slot in ours] != [slot.shape for slot in theirs] or _apart(ours, turned) <= _apart(
        ours, theirs
    )


def _apart(ours: list[Slot], theirs: list[Slot]) -> float:
    """Returns the sum of the differences between the statistics of two lists."""
    pairs = [pair for mine, its in zip(ours, theirs, strict=True) for pair in zip(mine.values, its.values, strict=True)]
    known = [float(abs(n - b)) for n, b in pairs if n is not None and b is not None]
    return sum(each for each in known if math.isfinite(each))


def _match_by_place(tested: Dump, trusted: Dump, mapping: Mapping[str, Mapping[str, str]]) -> Matching:
    """Pairs calls by module path, API name, direction and count.

    Args:
        tested: The run under test.
        trusted: The trusted run.
        mapping: Names by class of layer as a layer mapping file gives them.
    """
    ours, theirs = _ModuleTree(tested), _ModuleTree(trusted)
    paths = ours.map_paths(mapping)
    by_place: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name in trusted.entries:
        by_place[_place(theirs, name, {}, {})].append(name)
    counts: dict[tuple[str, ...], int] = defaultdict(int)
    calls = {}
    for name in tested.entries:
        place = _place(ours, name, paths, mapping)
        group = by_place.get(place, ())
        nth = counts[place]
        counts[place] += 1
        if nth < len(group):
            calls[name] = group[nth]
    return Matching(calls, _rename_parameter)


def _place(
    tree: _ModuleTree, name: str, paths: Mapping[str, str], mapping: Mapping[str, Mapping[str, str]]
) -> tuple[str, ...]:
    """Returns module path, API or nothing, direction, and count of a module's call."""
    base, direction, count = split_name(name)
    path = tree.path_of(name)
    if path is not None:
        return paths.get(path, path), "", direction, count
    prefix, _, api = base.partition(".")
    parent = tree.parent_path(name)
    if prefix == "Primitive":
        api = api.partition(".")[0]
    api = mapping.get(tree.class_of(parent), {}).get(api, api).partition("(")[0]
    place = paths.get(parent, parent)
    # Without a module to count in, the count of the name is all there is.
    return place, api, direction, "" if place else count


class _ModuleTree:
    """The tree of one dump.

    Args:
        dump: Its names, and the parents in construct.json, make the tree.
    """

    def __init__(self, dump: Dump) -> None:
        self._parents = dump.parents
        self._classes: dict[str, str] = {"": _TOP}
        self._paths: dict[str, str] = {}
        self._all: dict[str, None] = {}
        for name in (*dump.parents, *dump.entries):
            self._add(name)

    def _add(self, name: str) -> None:
        if not name.startswith(_PREFIXES) or name in self._paths:
            return
        path, _, kind = split_name(name)[0].partition(".")[2].rpartition(".")
        self._paths[name] = path
        self._classes.setdefault(path, kind)
        parts = path.split(".") if path else []
        self._all.update({".".join(parts[:end]): None for end in range(1, len(parts) + 1)})

    def path_of(self, name: str) -> str | None:
        """Returns the path of a module's call; None for an API's."""
        return self._paths.get(name)

    def parent_path(self, name: str) -> str:
        """Returns the path of the module that an API was called in; empty when it is not known."""
        return self._paths.get(self._parents.get(name) or "", "")

    def class_of(self, path: str) -> str:
        """Returns the class of the module there; empty for a container that is never called."""
        return self._classes.get(path, "")

    def map_paths(self, mapping: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        """Maps each path to its path in the other network, by a layer mapping.

        At each module the section of its class is looked up; in it the longest dotted key goes first, and a name
        without a key stays. What follows `(` in a target is left out.
        """
        return {path: ".".join(self._mapped(path.split("."), mapping)) for path in self._all}

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
