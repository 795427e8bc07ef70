"""The modules of a network as the names of a dump tell them, and where they lie in that of another framework."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from asd.dumps.formats.dump_folder import Dump
from asd.dumps.formats.slots import split_name

__all__ = ["ModuleTree"]

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
        self._all: dict[str, None] = {}
        for name in (*dump.parents, *dump.entries):
            self._add(name)

    def _add(self, name: str) -> None:
        if not name.startswith(_PREFIXES) or name in self._paths:
            return
        base = split_name(name)[0].partition(".")[2]
        path, _, kind = base.rpartition(".")
        self._paths[name] = path
        self._classes.setdefault(path, kind)
        parts = path.split(".") if path else []
        self._all.update({".".join(parts[:end]): None for end in range(1, len(parts) + 1)})

    def path_of(self, name: str) -> str | None:
        """The path of a module's call; None for an API's."""
        return self._paths.get(name)

    def parent_path(self, name: str) -> str:
        """The path of the module that an API was called in; empty when it is not known."""
        return self._paths.get(self._parents.get(name) or "", "")

    def class_of(self, path: str) -> str:
        """The class of the module there; empty for a container that is never called."""
        return self._classes.get(path, "")

    def map_paths(self, mapping: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        """Where each path lies in the other network, by a layer mapping.

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
