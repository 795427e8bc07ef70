"""The isolator `hostfile`: writes a host list, a rank table, or both, without the device."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asd.errors import ConfigError, IsolationError
from asd.exporters.isolators.hostfile.host_files import KeptList, ListContents, merged
from asd.exporters.isolators.marks import label, plain
from asd.exporters.isolators.options import seconds
from asd.isolator import Device, IsolationOwner
from asd.rundir.disk import HeldError, take_lock, write_whole

__all__ = ["HostFile"]

_VERSION = 1


class HostFile:
    """Keeps files without what was taken out.

    Args:
        hosts: The complete host list; a host is left out while any of its devices is.
        hosts_out: Where the list without it is written; `hosts` with `.asd` at its end by default.
        rank_table: The complete rank table; exactly the device is left out, and ranks are counted anew.
        rank_table_out: Where the table without it is written; `rank_table` with `.asd` at its end by default.
        record: What was taken out, in JSON; the first output with `.isolated.json` at its end by default.
        timeout: Seconds to wait for another handler that writes the files.

    Raises:
        ConfigError: An option is not valid, or neither a host list nor a rank table is given.
    """

    name = "hostfile"

    def __init__(
        self,
        *,
        hosts: str | Path = "",
        hosts_out: str | Path = "",
        rank_table: str | Path = "",
        rank_table_out: str | Path = "",
        record: str | Path = "",
        timeout: float | str = 10.0,
    ) -> None:
        given = [(hosts, hosts_out, False), (rank_table, rank_table_out, True)]
        self._lists = [
            KeptList(Path(source).absolute(), Path(output or f"{source}.asd").absolute(), table)
            for source, output, table in given
            if source
        ]
        if not self._lists:
            raise ConfigError("the option hosts", str(hosts), "it must be a host list, unless rank_table is given")
        self._record = Path(record or f"{self._lists[0].output}.isolated.json")
        paths = [path for kept in self._lists for path in (kept.source, kept.output)] + [self._record]
        for number, path in enumerate(paths):
            if path.is_dir() or path.resolve() in {other.resolve() for other in paths[:number]}:
                raise ConfigError("the option hosts, rank_table or record", str(path), "it must be a file of its own")
        self._timeout = seconds("timeout", timeout)

    def held(self, device: Device) -> IsolationOwner:
        """Who holds `device` out, as `Isolator.held`."""
        with self._sentences(device):
            return self._held(device, self._read(), [kept.read() for kept in self._lists])

    def isolate(self, device: Device, reason: str, event_id: str) -> None:
        """Writes the files without `device`, as `Isolator.isolate`.

        Raises:
            IsolationError: Also when somebody else removed it, and when nothing would be left.
        """
        with self._sentences(device), self._locked():
            record, contents = self._read(), [kept.read() for kept in self._lists]
            held = self._held(device, record, contents)
            if held is IsolationOwner.OTHERS:
                raise ValueError("somebody else removed it, so it is left alone")
            before = record["out"].get(_key(device))
            if held is IsolationOwner.OURS and not before["returning"]:
                return
            entry = before or {
                "host": device.host,
                "device": device.device,
                "event": event_id,
                "reason": plain(reason, 500),
                "entries": {
                    str(kept.output): self._keys(device, record, kept, found)
                    for kept, found in zip(self._lists, contents, strict=True)
                },
            }
            self._rewrite(_key(device), {**entry, "returning": False}, record, contents)

    def release(self, device: Device) -> None:
        """Writes `device` into the files again, as `Isolator.release`."""
        with self._sentences(device), self._locked():
            record = self._read()
            entry = record["out"].get(_key(device))
            if entry is not None:
                contents = [kept.read() for kept in self._lists]
                self._rewrite(_key(device), {**entry, "returning": True}, record, contents)

    def _rewrite(
        self, changed: str, entry: dict[str, Any], record: dict[str, Any], contents: list[ListContents]
    ) -> None:
        """Brings the files to what the record says; what an earlier call began and did not end is ended or dropped."""
        out = {key: each for key, each in record["out"].items() if any(self._missing(each, contents))}
        out[changed] = entry
        kept_out = {key: each for key, each in out.items() if not each["returning"]}
        ours, back = _by_list(kept_out), _by_list({key: each for key, each in out.items() if each["returning"]})
        texts = []
        for kept, found in zip(self._lists, contents, strict=True):
            name = str(kept.output)
            entries = merged(found, self._base(record, kept, found), ours.get(name, ()), back.get(name, ()))
            texts.append(kept.text(entries, found))
        self._save({**record, "out": out})  # first, or after a crash it would look removed by others
        for kept, text, found in zip(self._lists, texts, contents, strict=True):
            kept.write(text, found)
        base = {str(kept.output): list(found.source) for kept, found in zip(self._lists, contents, strict=True)}
        self._save({"out": kept_out, "base": base})

    def _held(self, device: Device, record: dict[str, Any], contents: list[ListContents]) -> IsolationOwner:
        """Who holds `device` out by the record, as long as the files agree with it."""
        mine = record["out"].get(_key(device))
        if mine is not None:
            missing = list(self._missing(mine, contents))
            is_out = any(missing) if mine["returning"] else bool(missing) and all(missing)
            return IsolationOwner.OURS if is_out else IsolationOwner.FREE
        kept_out = _by_list(record["out"])
        for kept, found in zip(self._lists, contents, strict=True):
            name, base = str(kept.output), self._base(record, kept, found)
            for key in self._keys(device, record, kept, found):
                is_missing = found.output is not None and key not in found.output
                if is_missing and key in base and key not in kept_out.get(name, ()):
                    return IsolationOwner.OTHERS
        return IsolationOwner.FREE

    def _missing(self, entry: dict[str, Any], contents: list[ListContents]) -> Iterator[bool]:
        """Whether each of the things that a device stands for is missing where it should be."""
        for kept, found in zip(self._lists, contents, strict=True):
            for key in entry["entries"].get(str(kept.output), ()):
                yield found.output is not None and key not in found.output

    def _keys(self, device: Device, record: dict[str, Any], kept: KeptList, found: ListContents) -> list[str]:
        recorded = record["out"].get(_key(device), {"entries": {}})["entries"].get(str(kept.output))
        keys: list[str] = kept.keys(device.host, device, found) if recorded is None else recorded
        return keys

    def _base(self, record: dict[str, Any], kept: KeptList, found: ListContents) -> set[str]:
        return set(record["base"].get(str(kept.output), found.source))

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._record.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {"out": {}, "base": {}}
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the record {self._record} is corrupt: {error}") from error
        if not isinstance(found, dict) or found.pop("version", None) != _VERSION or not _is_record(found):
            raise ValueError(f"the record {self._record} is none of version {_VERSION}")
        return found

    def _save(self, record: dict[str, Any]) -> None:
        write_whole(self._record, json.dumps({"version": _VERSION, **record}, indent=1))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keeps two handlers apart; the lock ends with the process."""
        self._record.parent.mkdir(parents=True, exist_ok=True)
        path = self._record.with_name(f".{self._record.name}.lock")
        try:
            descriptor = take_lock(path, patience=self._timeout)
        except HeldError:
            raise TimeoutError(f"another handler holds {path} for {self._timeout:g} s") from None
        try:
            yield
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _sentences(self, device: Device) -> Iterator[None]:
        try:
            yield
        except ValueError as error:  # what is in the files stays there, however often it is tried
            raise IsolationError(device, self.name, str(error), retry=False) from error
        except TimeoutError as error:
            raise IsolationError(device, self.name, str(error)) from error
        except OSError as error:
            what = f"{error.filename or self._record}: {error.strerror or error}"
            raise IsolationError(device, self.name, what) from error


def _key(device: Device) -> str:
    return f"{json.dumps(device.host)} {label(device)}"


def _by_list(out: dict[str, Any]) -> dict[str, set[str]]:
    """What is kept out, by the file that lacks it."""
    found: dict[str, set[str]] = {}
    for entry in out.values():
        for name, keys in entry["entries"].items():
            found.setdefault(name, set()).update(keys)
    return found


def _is_entry(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("entries"), dict) and type(entry.get("returning")) is bool


def _is_record(found: dict[str, Any]) -> bool:
    out, base = found.get("out"), found.get("base")
    return isinstance(out, dict) and isinstance(base, dict) and all(map(_is_entry, out.values()))
