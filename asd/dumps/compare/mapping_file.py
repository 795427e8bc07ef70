"""The layer mapping file a user writes for layers that do not match by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from asd.dumps.compare.matching import Matching, match_by_place, match_names
from asd.dumps.formats.dump_folder import Dump
from asd.dumps.formats.json_file import open_text
from asd.errors import ConfigError, UnsupportedError

__all__ = ["match_with", "read_yaml"]

_LARGEST = 1 << 24


def match_with(tested: Dump, trusted: Dump, layer: Path | None) -> Matching:
    """The pairs of two dumps.

    Args:
        tested: The run under test.
        trusted: The trusted run.
        layer: A yaml file: class of layer, then `name in MindSpore: name in PyTorch`; `TopLayer` at the top. None: what
            matches by itself.

    Raises:
        ConfigError: The file is no such mapping.
        UnsupportedError: PyYAML is not installed.
        OSError: The file can't be read.
    """
    if layer is None:
        return match_names(tested, trusted)
    matching = match_by_place(tested, trusted, _sections(layer, read_yaml(layer)))
    if not matching.calls:
        raise ConfigError("the layer mapping", str(layer), "no call of one dump meets one of the other through it")
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


def _sections(path: Path, found: Any) -> dict[str, dict[str, str]]:
    valid = "sections with `name: name` in them are needed"
    if not isinstance(found, dict):
        raise ConfigError("the mapping file", str(path), valid)
    result: dict[str, dict[str, str]] = {}
    for section, names in found.items():
        if names is not None and not isinstance(names, dict):
            raise ConfigError("the mapping file", str(path), f"the section {section!r} is none: {valid}")
        for key, value in (names or {}).items():
            if isinstance(value, (dict, list)) or value is None:
                raise ConfigError("the mapping file", str(path), f"{key!r} has no name on its right: {valid}")
        result[str(section)] = {str(key): str(value) for key, value in (names or {}).items()}
    return result
