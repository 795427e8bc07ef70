"""One list of hosts or devices that is kept without what was taken out."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asd.exporters.isolators.hostfile.rank_table import devices_in, write_table
from asd.exporters.isolators.marks import chip
from asd.isolator import Device
from asd.rundir.disk import write_whole

__all__ = ["KeptList", "ListContents", "hosts_in", "merged"]

_HOST = re.compile(r"[^\s:#=\[\]]+")
_LARGEST = 256 * 1024 * 1024


@dataclass(frozen=True)
class ListContents:
    """What a source and what was made of it hold, by entry.

    Attributes:
        source: Entries of the source.
        output: Entries of the output; None while there is none.
        original: Text of the source.
        written: Text of the output; None while there is none.
    """

    source: Mapping[str, Any]
    output: Mapping[str, Any] | None
    original: str
    written: str | None


@dataclass(frozen=True)
class KeptList:
    """A source, where it is written to, and of which kind it is.

    Attributes:
        source: The complete list; never written.
        output: The list without what was taken out.
        is_table: Whether they are rank tables; else host lists.
    """

    source: Path
    output: Path
    is_table: bool

    def read(self) -> ListContents:
        """Reads both files.

        Raises:
            ValueError: A file is missing, can't be read, or holds no such list; the sentence names it.
        """
        read: Callable[[str], Mapping[str, Any]] = devices_in if self.is_table else hosts_in
        original = _text(self.source)
        written = _text(self.output) if self.output.exists() else None
        return ListContents(
            _named(self.source, read, original),
            _named(self.output, read, written) if written is not None else None,
            original,
            written,
        )

    def keys(self, node: str, device: Device, found: ListContents) -> list[str]:
        """The entries that are about `device` on `node`: its host in a host list, itself in a rank table.

        Raises:
            ValueError: The source has none.
        """
        if not self.is_table:
            if node in found.source:
                return [node]
            raise ValueError(f"{self.source} has no host {node!r}; it has {_some(found.source)}")
        number = chip(device)
        for key, entry in found.source.items():
            server = entry["server"]
            if node in (server["server_id"], server.get("host_ip")) and number == int(entry["device"]["device_id"]):
                return [key]
        raise ValueError(
            f"{self.source} has no device {device.device!r} of server {node!r}; it has {_some(found.source)}"
        )

    def text(self, entries: Mapping[str, Any], found: ListContents) -> str:
        """What the output should hold.

        Raises:
            ValueError: Nothing would be left.
        """
        if not entries:
            raise ValueError(f"nothing would be left in {self.output}")
        return (
            write_table(entries, found.original)
            if self.is_table
            else "".join(f"{line}\n" for lines in entries.values() for line in lines)
        )

    def write(self, text: str, found: ListContents) -> None:
        """Writes the output, unless it holds that already.

        Raises:
            OSError: It can't be written; what was there is still there.
        """
        if text != found.written:
            write_whole(self.output, text)
            self.output.chmod(self.source.stat().st_mode & 0o777)  # who reads the one reads the other


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


def merged(found: ListContents, base: Collection[str], ours: Collection[str], back: Collection[str]) -> dict[str, Any]:
    """The entries that the output should have.

    Args:
        found: What the files hold.
        base: Entries of the source when the output was last written; what it has more by now is new.
        ours: Entries that we keep out.
        back: Entries that we give back.

    Returns:
        In the order of the source. What others removed from the output stays out, what they added stays in.
    """
    output = found.source if found.output is None else found.output
    kept = {
        key: output.get(key, entry)
        for key, entry in found.source.items()
        if key not in ours and (key in output or key in back or key not in base)
    }
    added = {key: entry for key, entry in output.items() if key not in found.source and key not in {*ours, *base}}
    return {**kept, **added}


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError(f"{path} has more than {_LARGEST} bytes")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text in UTF-8") from error


def _named(path: Path, read: Callable[[str], Mapping[str, Any]], text: str) -> Mapping[str, Any]:
    try:
        return read(text)
    except ValueError as error:
        raise ValueError(f"{path} can't be used: {error}") from error


def _some(entries: Mapping[str, Any]) -> str:
    names = list(entries)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") or "none at all"
