"""A host list: one host a line, as `mpirun --hostfile` and most launchers take it."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["hosts_in", "write_hosts"]

_HOST = re.compile(r"[^\s:#=\[\]]+")


def hosts_in(text: str) -> dict[str, list[str]]:
    r"""Every host of a list with its lines, in order; comments and empty lines belong to none.

    >>> hosts_in("# first rack\nn1 slots=8\nn2:8\n")
    {'n1': ['n1 slots=8'], 'n2': ['n2:8']}

    Raises:
        ValueError: A line names no host; the sentence says which.
    """
    hosts: dict[str, list[str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        content = line.strip()
        if not content or content.startswith("#"):
            continue
        found = _HOST.match(content)
        if found is None:
            raise ValueError(f"line {number} is {content[:80]!r}; valid is a host such as `n1 slots=8` or `n1:8`")
        hosts.setdefault(found.group(), []).append(line)
    return hosts


def write_hosts(entries: Mapping[str, list[str]]) -> str:
    """The text of a list with these lines."""
    return "".join(f"{line}\n" for lines in entries.values() for line in lines)
