"""The mapping files a user writes for what does not match by itself: by layer, by cell, by API, by slot.

layer     class of layer, then `name in MindSpore: name in PyTorch`; `TopLayer` at the top
cell      `fc2.Dense: fc2.Linear`, or parts of such names
api       a list of `ms_api, pt_api, ms_args, pt_args, ms_outputs, pt_outputs`
data      full names of slots
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asd.dumps.formats.dump_folder import Dump
from asd.dumps.formats.json_stream import open_text
from asd.dumps.formats.slots import split_name
from asd.dumps.pairing.matching import Matching, match_by_place, match_names, rename_parameter
from asd.errors import ConfigError, UnsupportedError

__all__ = ["match_with", "read_yaml"]

_LARGEST = 1 << 24
_API_KEYS = ("ms_api", "pt_api", "ms_args", "pt_args", "ms_outputs", "pt_outputs")


def match_with(
    tested: Dump, trusted: Dump, *, layer: Path | None = None, cell: Path | None = None, api: Path | None = None,
    data: Path | None = None,
) -> Matching:  # fmt: skip
    """The pairs of two dumps, with what the given files say.

    Raises:
        ConfigError: A file is no such mapping.
        UnsupportedError: PyYAML is not installed.
        OSError: A file can't be read.
    """
    if layer is not None:
        sections = _names(layer, read_yaml(layer), nested=True)
        matching = match_by_place(tested, trusted, sections)
        if not matching.calls:
            raise ConfigError("the layer mapping", str(layer), "no call of one dump meets one of the other through it")
    else:
        matching = match_names(tested, trusted)
    if cell is not None:
        _match_cells(matching, tested, trusted, _names(cell, read_yaml(cell), nested=False))
    if api is not None:
        _match_apis(matching, tested, trusted, _apis(api, read_yaml(api)))
    if data is not None:
        matching.slots.update(_names(data, read_yaml(data), nested=False))
    return matching


def read_yaml(path: Path) -> Any:
    """What a YAML file holds; no tag in it makes an object.

    Raises:
        ConfigError: It is too long or no YAML.
        UnsupportedError: PyYAML is not installed.
        OSError: It can't be read.
    """
    try:
        import yaml
    except ModuleNotFoundError:
        raise UnsupportedError(
            f"{path} needs PyYAML to be read, which is not installed; pip install 'mindspore-asd[compare]' brings it."
        ) from None
    with open_text(path) as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ConfigError("the mapping file", str(path), f"at most {_LARGEST} characters")
    try:
        return yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        raise ConfigError("the mapping file", str(path), f"YAML is needed{where}") from None


def _names(path: Path, found: Any, *, nested: bool) -> dict[str, Any]:
    valid = "sections with `name: name` in them" if nested else "lines of `name: name`"
    if not isinstance(found, dict):
        raise ConfigError("the mapping file", str(path), f"{valid} are needed")
    result: dict[str, Any] = {}
    for key, value in found.items():
        if nested:
            if value is not None and not isinstance(value, dict):
                raise ConfigError("the mapping file", str(path), f"the section {key!r} is none: {valid} are needed")
            value = _names(path, value or {}, nested=False)
        elif isinstance(value, (dict, list)) or value is None:
            raise ConfigError("the mapping file", str(path), f"{key!r} has no name on its right: {valid} are needed")
        result[str(key)] = value if nested else str(value)
    return result


def _match_cells(matching: Matching, tested: Dump, trusted: Dump, names: Mapping[str, str]) -> None:
    for name in tested.entries:
        if name.startswith("Cell."):
            renamed = f".{name}."
            for ours, theirs in names.items():
                renamed = renamed.replace(f".{ours}.", f".{theirs}.")
            renamed = renamed[1:-1]
            for candidate in (renamed, f"Module.{renamed.removeprefix('Cell.')}"):
                if candidate in trusted.entries:
                    matching.calls[name] = candidate
    matching.rename = rename_parameter


def _apis(path: Path, found: Any) -> dict[str, dict[str, Any]]:
    valid = f"a list of entries with {', '.join(_API_KEYS)} is needed"
    if not isinstance(found, list):
        raise ConfigError("the mapping file", str(path), valid)
    result = {}
    for item in found:
        if not isinstance(item, dict) or not all(isinstance(item.get(key), str) for key in _API_KEYS[:2]):
            raise ConfigError("the mapping file", str(path), valid)
        for ours, theirs in (_API_KEYS[2:4], _API_KEYS[4:6]):
            lists = item.get(ours, []), item.get(theirs, [])
            if not all(isinstance(x, list) and all(isinstance(i, int) for i in x) for x in lists) or len(
                lists[0]
            ) != len(lists[1]):
                raise ConfigError(
                    "the mapping file", str(path), f"{ours} and {theirs} of {item['ms_api']!r} are not alike"
                )
        result[item["ms_api"]] = item
    return result


def _match_apis(matching: Matching, tested: Dump, trusted: Dump, apis: Mapping[str, dict[str, Any]]) -> None:
    renames: dict[str, dict[str, str]] = {}
    for name in tested.entries:
        base, direction, count = split_name(name)
        item = apis.get(base)
        candidate = "" if item is None else f"{item['pt_api']}.{count}.{direction}"
        if item is not None and candidate in trusted.entries:
            matching.calls[name] = candidate
            # What goes in forward comes out backward.
            ends = ("input", "output") if direction == "forward" else ("output", "input")
            renames[name] = {
                f"{end}.{ours}": f"{end}.{theirs}"
                for end, (mine, other) in zip(ends, (_API_KEYS[2:4], _API_KEYS[4:6]), strict=True)
                for ours, theirs in zip(item.get(mine, []), item.get(other, []), strict=True)
            }
    before = matching.rename

    def rename(name: str, suffix: str) -> str:
        return renames.get(name, {}).get(suffix) or before(name, suffix)

    matching.rename = rename
