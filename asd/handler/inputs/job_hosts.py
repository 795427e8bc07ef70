"""On which hosts a job runs, by a list of the handler's own; `asd.exporters.kubernetes` knows it of the scheduler."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from asd.errors import ConfigError, StateError
from asd.handler.inputs.targets import Target, WatchedFile
from asd.records import load

__all__ = ["FileJobs"]

_MOST_BYTES = 16 << 20
_FORM = 'a JSON object such as {"llama": ["node7", "node8"]}, from the name of a run to its hosts'


class FileJobs(WatchedFile[dict[str, frozenset[str]]]):
    """The jobs that a file names, each with its hosts."""

    what = "jobs"

    def look(self) -> list[Target]:
        """Reads the file again where it has changed; no agent stands there."""
        self.refresh()
        return []

    def hosts(self, job: str) -> Collection[str]:
        """On which hosts a job runs."""
        return self.content.get(job, ())

    def _read(self) -> dict[str, frozenset[str]]:
        try:
            found = load(self.path, "file of jobs", _FORM, most=_MOST_BYTES)
            return msgspec.convert(found, dict[str, frozenset[str]])
        except (StateError, msgspec.ValidationError) as error:
            raise ConfigError(
                "--jobs", str(self.path), f"{str(error).removesuffix('.')}; it must be {_FORM}"
            ) from error
