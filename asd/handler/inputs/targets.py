"""Files of agents to pull from, and of the hosts of jobs; both are re-read when they change."""

import json
import os
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Meta

from asd.errors import ConfigError, StateError
from asd.records import load
from asd.regular_file import read_regular

_Content = TypeVar("_Content")
_MOST_BYTES = 16 << 20
_PLACE = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:/\[\]\s]+)):(?P<port>[0-9]{1,5})", re.ASCII)
_JOBS_FORM = 'a JSON object such as {"llama": ["node7", "node8"]}, from the name of a run to its hosts'
_FORM = "it must be HOST:PORT, for example node7:9464"


class Target(NamedTuple):
    """Agent to pull from."""

    host: str  # name or address to connect to
    port: int  # its port, 1..65535
    node: str  # the one node whose devices it may report
    name: str  # name that its certificate must have
    away: str = ""  # reason why it cannot be asked, without a full stop; empty if it can

    @property
    def place(self) -> str:
        """Returns host and port in one text."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class TargetSource(Protocol):
    """Source of agents."""

    problem: str  # reason why the agents are unknown now, in one sentence without a full stop; empty for none

    def look(self) -> list[Target]:
        """Returns the current agents, or the last known ones if these are unknown. It may block."""


@dataclass
class _Group:
    targets: Annotated[list[str], Meta(description="a list of HOST:PORT")]
    labels: Annotated[dict[str, str], Meta(description="texts by name")] = field(default_factory=dict)


def read_place(text: str, setting: str) -> tuple[str, int]:
    """Returns host and port of `HOST:PORT`; an error names `setting`."""
    match = _PLACE.fullmatch(text)
    if match is None or not 1 <= int(match["port"]) <= 65535:
        raise ConfigError(setting, text, _FORM)
    return match["v6"] or match["host"], int(match["port"])


class WatchedFile(Generic[_Content]):
    """File that is re-read when it or a file that it names changes; raises ConfigError if it is not valid at first."""

    kept = ""  # the sentence that begins with what a change that is not valid leaves as it was

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""  # reason why the earlier content is kept, in one sentence without a full stop; empty for none
        self.files: tuple[Path, ...] = ()  # files that it names
        self._seen = self._stamps()
        self.content = self._read()
        self._seen += map(_stamp, self.files)

    def refresh(self) -> None:
        """Re-reads the file if it has changed, or was not valid."""
        seen = self._stamps()
        if seen != self._seen or self.problem:
            self._seen = seen
            try:
                self.content, self.problem = self._read(), ""
            except ConfigError as error:
                self.problem = f"{self.kept}: {str(error).removesuffix('.')}"

    def _read(self) -> _Content:
        raise NotImplementedError

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in (self.path, *self.files)]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Returns a stamp that differs after a change of the file; None if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class FileTargets(WatchedFile[list[Target]]):
    """Agents in a file in the form of Prometheus' `file_sd`.

        [{"targets": ["node7:9464"], "labels": {"node": "node7"}}]

    Only the label `node` counts; without it the node is called like the target's host.
    """

    kept = "the agents are unchanged"

    def look(self) -> list[Target]:
        """Returns the agents in the file."""
        self.refresh()
        return self.content

    def _read(self) -> list[Target]:
        setting = f"the file of agents {self.path}"
        try:
            groups = msgspec.convert(json.loads(read_regular(self.path, _MOST_BYTES, links=True)), list[_Group])
        except OSError as error:
            raise ConfigError(setting, "", f"it can't be read: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:  # no JSON, or of another form
            form = '[{"targets": ["node7:9464"], "labels": {"node": "node7"}}]'
            raise ConfigError(setting, str(error)[:200], f"it must be JSON such as {form}") from error
        what = f"a target in {self.path}"
        places = [(*read_place(text, what), group.labels) for group in groups for text in group.targets]
        targets = [Target(host, port, labels.get("node", host), host) for host, port, labels in places]
        return list({target.place: target for target in targets}.values())


class FileJobs(WatchedFile[dict[str, frozenset[str]]]):
    """Jobs in a file, each with its hosts."""

    kept = "the jobs are unchanged"

    def look(self) -> list[Target]:
        """Re-reads the file if it has changed; returns no agents."""
        self.refresh()
        return []

    def hosts(self, job: str) -> Collection[str]:
        """Returns the hosts of a job."""
        return self.content.get(job, ())

    def _read(self) -> dict[str, frozenset[str]]:
        try:
            found = load(self.path, "file of jobs", _JOBS_FORM, most=_MOST_BYTES)
            return msgspec.convert(found, dict[str, frozenset[str]])
        except (StateError, msgspec.ValidationError) as error:
            raise ConfigError(
                "--jobs", str(self.path), f"{str(error).removesuffix('.')}; it must be {_JOBS_FORM}"
            ) from error
