"""The isolator `hostfile`: keeps a copy of a host list in which the hosts that are out are comments.

    # ASD 80818C00 Ascend:3 evt-573d6a3a | n1 slots=8

What stands before the bar is the mark of ownership, as in the reason of a drain of Slurm.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from asd.errors import ConfigError, IsolationError, and_more
from asd.exporters.isolators.marks import event_mark, label, marks_in, reason_for
from asd.isolator import Device, IsolationOwner
from asd.regular_file import read_regular
from asd.rundir.disk import write_whole

_HOST = re.compile(r"[^\s:#=\[\]]+")
_OURS = re.compile(r"# (ASD .*?) \| (.*)")
_LARGEST = 64 << 20


class _Lists(NamedTuple):
    """Content of the files."""

    lines: list[str]  # the lines of the source
    hosts: list[str]  # the hosts in the source
    gone: set[str]  # hosts that somebody commented out in the source
    marks: dict[str, dict[str, str]]  # by host that the output leaves out, the devices behind it, each with its event


class HostFile:
    """Isolator that writes a host list without hosts of isolated devices; one isolated device leaves its host out.

    Args:
        hosts: The complete host list; it is never written.
        hosts_out: Where the list without is written; `hosts` with `.asd` at its end by default.
    """

    name = "hostfile"
    whole_nodes = True

    def __init__(self, *, hosts: str | Path = "", hosts_out: str | Path = "") -> None:
        if not hosts:
            raise ConfigError("the option hosts", str(hosts), "it must be a host list")
        self._source, self._output = Path(hosts).absolute(), Path(hosts_out or f"{hosts}.asd").absolute()
        if self._source.is_dir() or self._output.is_dir() or self._source.resolve() == self._output.resolve():
            raise ConfigError("the option hosts or hosts_out", str(hosts), "it must be a file of its own")

    def nodes(self) -> list[str]:
        """Returns the hosts of the list; raises ValueError if it can't be used."""
        return self._read().hosts

    def held(self, device: Device) -> IsolationOwner:
        """Returns who isolated `device`, as `Isolator.held`."""
        with self._sentences(device):
            return self._held(device, self._read())

    def isolate(self, device: Device, reason: str, event_id: str) -> None:  # noqa: ARG002 - the event has the reason
        """Writes the list without the host of `device`, as `Isolator.isolate`."""
        with self._sentences(device):
            found = self._read()
            held = self._held(device, found)
            if held is IsolationOwner.OTHERS:
                raise ValueError(f"someone else made it a comment in {self._source}; it is not changed")
            if held is IsolationOwner.FREE:
                found.marks.setdefault(device.host, {})[label(device)] = event_mark(event_id)
                self._write(found)

    def release(self, device: Device) -> None:
        """Writes the list with the host of `device`, unless another one of its devices is out; `Isolator.release`."""
        with self._sentences(device):
            found = self._read()
            if found.marks.get(device.host, {}).pop(label(device), None):
                self._write(found)

    def _held(self, device: Device, found: _Lists) -> IsolationOwner:
        if label(device) in found.marks.get(device.host, ()):
            return IsolationOwner.OURS
        if device.host in found.hosts:
            return IsolationOwner.FREE
        if device.host in found.gone:
            return IsolationOwner.OTHERS
        raise ValueError(f"{self._source} has no host {device.host!r}; it has {and_more(found.hosts, 5) or 'no hosts'}")

    def _read(self) -> _Lists:
        lines = _text(self._source).splitlines()
        named = [(line.strip(), _host_of(line.strip())) for line in lines]
        for text, host in named:
            if text and not text.startswith("#") and not host:
                raise ValueError(
                    f"{self._source} can't be used: {text[:80]!r}; it must be a host such as `n1 slots=8` or `n1:8`"
                )
        hosts = dict.fromkeys(host for text, host in named if host and not text.startswith("#"))
        gone = {host for text, host in named if text.startswith("#")} - hosts.keys()
        marks = {}
        for line in _text(self._output).splitlines() if self._output.exists() else ():
            if (match := _OURS.fullmatch(line)) and line not in lines:  # or it was copied into the source
                marks[_host_of(match[2].strip())] = marks_in(match[1])
        return _Lists(lines, list(hosts), gone, marks)

    def _write(self, found: _Lists) -> None:
        """Writes the output that the marks require, atomically."""
        out = {host: f"# {reason_for(marks)} | " for host, marks in found.marks.items() if marks}
        if all(host in out for host in found.hosts):
            raise ValueError(f"no host would be left in {self._output}")
        lines = [_marked(line, out) for line in found.lines]
        lines += [f"{mark}{host}" for host, mark in out.items() if host not in found.hosts]  # left the source meanwhile
        write_whole(self._output, "".join(f"{line}\n" for line in lines))
        self._output.chmod(self._source.stat().st_mode & 0o777)  # readers of the one can read the other

    @contextlib.contextmanager
    def _sentences(self, device: Device) -> Iterator[None]:
        try:
            yield
        except ValueError as error:  # what is in the files stays there, however often it is tried
            raise IsolationError(device, self.name, str(error), retry=False) from error
        except OSError as error:
            what = f"{error.filename or self._output}: {error.strerror or error}"
            raise IsolationError(device, self.name, what) from error


def _host_of(text: str) -> str:
    """Returns the host that a line, or a comment, begins with; empty for none."""
    match = _HOST.match(text.lstrip("# "))
    return match.group() if match else ""


def _marked(line: str, out: Mapping[str, str]) -> str:
    text = line.strip()
    return line if not text or text.startswith("#") else f"{out.get(_host_of(text), '')}{line}"


def _text(path: Path) -> str:
    try:
        return read_regular(path, _LARGEST, links=True).decode()
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text in UTF-8") from error
