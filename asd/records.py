"""Reads records from JSON, with one way to check them and one form of error messages.

The types of a dataclass's fields define valid values, for `msgspec` in its terms and for people in `description`. The
parser is Python's own: file names may not be valid Unicode, and `msgspec.json` refuses that.
"""

import functools
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec
from msgspec import Meta

from asd.errors import StateError
from asd.regular_file import read_regular

_T = TypeVar("_T")
_LARGEST = sys.float_info.max
_NOT_FINITE = ("inf", "-inf", "nan")

Text = Annotated[str, Meta(description="a text")]
Name = Annotated[str, Meta(max_length=512, description="a text of at most 512 characters")]
Flag = Annotated[bool, Meta(description="true or false")]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1, description="a whole number from 0 on")]
Rank = Annotated[int, Meta(ge=-1, le=2**63 - 1, description="a whole number from -1 on")]
Finite = Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST, description="a number")]
Number = Annotated[float, Meta(description="a number, or one of the texts inf, -inf, nan")]


def read(
    text: str | bytes, kind: type[_T], name: str, valid: str, *, version: int, numbers: tuple[str, ...] = ()
) -> _T:
    """Returns a record from its JSON text; raises StateError, which names the field.

    Args:
        text: JSON object with `version` and the fields of the record; unknown fields are ignored.
        kind: A dataclass.
        name: Name of the record in messages, such as `status`.
        valid: Source of valid records, for messages.
        version: The version that is known.
        numbers: Members with numbers that need not be finite, see `floats`.
    """
    return fill(kind, floats(_of_version(parse(text, name, valid), name, version), *numbers), name)


def load_if_there(path: Path, name: str, valid: str, *, version: int | None = None) -> dict[str, Any] | None:
    """Returns the JSON object in a file; None when there is no such file."""
    try:
        path.lstat()
    except FileNotFoundError:
        return None
    except OSError:  # `load` reports it
        pass
    return load(path, name, valid, version=version)


def load(path: Path, name: str, valid: str, *, version: int | None = None, most: int = 1 << 30) -> dict[str, Any]:
    """Returns the JSON object in a file.

    Args:
        path: The file.
        name: Name of the file in messages, such as `state file`.
        valid: Source of valid files, for messages.
        version: The version that is known, which is removed from the object; None if it has none.
        most: Most bytes that it may have.
    """
    try:
        text = read_regular(path, most, links=True)
    except OSError as error:
        raise StateError(f"{name} {path} can't be read: {error.strerror or error}.") from error
    try:
        data = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise StateError(f"{name} {path} is corrupt: {error}; it must be {valid}.") from error
    if not isinstance(data, dict):
        raise StateError(f"{name} {path} is corrupt: it holds a {type(data).__name__}; it must be {valid}.")
    return data if version is None else _of_version(data, f"{name} {path}", version)


def _of_version(data: dict[str, Any], name: str, version: int) -> dict[str, Any]:
    found = data.pop("version", None)
    if type(found) is not int or found != version:
        raise StateError(f"{name} has version {found!r:.80}; it must be {version}.")
    return data


def parse(text: str | bytes, name: str, valid: str) -> dict[str, Any]:
    """Returns the JSON object in `text`."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StateError(f"{_not(name)}: {error} in {text[:120]!r}; it must be {valid}.") from error
    if not isinstance(data, dict):
        raise StateError(f"{_not(name)}: {text[:120]!r}; it must be {valid}.")
    return data


def _not(name: str) -> str:
    return f"not {'an' if name[0] in 'aeio' else 'a'} {name}"


def fill(kind: type[_T], data: Mapping[str, Any], name: str) -> _T:
    """Returns a record from parsed JSON. The fields of a nested dataclass are among the others."""
    if not isinstance(data, Mapping):
        raise StateError(f"{name} is {data!r:.80}; it must be an object.")
    parts = {field: fill(part, data, name) for field, part in _parts(kind).items()}  # type: ignore[arg-type]
    try:
        return msgspec.convert({**data, **parts} if parts else data, kind)
    except UnicodeEncodeError as error:
        raise StateError(f"{name} holds half a surrogate pair, {error.object!r:.80}; it must be text.") from None
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, StateError):  # the record's own check
            raise error.__cause__ from None
        what, _, path = str(error).partition(" - at `$.")
        field = path.partition(".")[0].partition("[")[0].rstrip("`") or what.partition("`")[2].rstrip("`")
        hint = get_type_hints(kind, include_extras=True)[field]
        notes = (note.description for note in getattr(hint, "__metadata__", ()) if note.description)
        valid = next((f"it must be {note}" for note in notes), what)
        raise StateError(f"{name} field {field} is {data.get(field)!r:.80}; {valid}.") from None


@functools.lru_cache(maxsize=64)
def _parts(kind: type) -> dict[str, Any]:
    return {name: hint for name, hint in get_type_hints(kind).items() if is_dataclass(hint)}


@functools.lru_cache(maxsize=64)
def _layout(kind: type) -> tuple[tuple[str, bool], ...]:
    return tuple((each.name, each.name in _parts(kind)) for each in fields(kind))


def members(record: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass by name, as `fill` takes them."""
    found: dict[str, Any] = {}
    for name, is_part in _layout(type(record)):  # type: ignore[arg-type]
        value = getattr(record, name)
        if is_part:
            found.update(members(value))
        else:
            found[name] = value
    return found


def floats(data: Any, *names: str) -> Any:
    """Converts the texts `inf`, `-inf` and `nan` to numbers, in the members with these names and everything inside."""
    if isinstance(data, dict):
        return {key: _number(item) if key in names else floats(item, *names) for key, item in data.items()}
    return [floats(item, *names) for item in data] if names and isinstance(data, list) else data


def _number(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _number(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_number(item) for item in value]
    return float(value) if isinstance(value, str) and value in _NOT_FINITE else value


def plain(value: Any) -> Any:
    """Converts `inf` and `nan` to texts, since JSON has no such numbers."""
    if isinstance(value, (str, int)):
        return value
    if isinstance(value, dict):
        return {key: item if isinstance(item, (str, int)) else plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def time_text(seconds: float, timespec: str = "seconds") -> str:
    """Returns a time in seconds since the epoch in ISO 8601, in UTC."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec=timespec)


def read_time(text: str) -> datetime:
    """Parses a time in ISO 8601, or raises ValueError; Python 3.10 does not accept `Z` for UTC.

    >>> read_time("2026-01-31T12:00:00Z").isoformat()
    '2026-01-31T12:00:00+00:00'
    """
    return datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
