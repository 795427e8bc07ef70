"""A configuration file in YAML: its keys, checked one by one, and where they stand for error messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from asd.errors import ConfigError, UnsupportedError

__all__ = ["Section", "is_flag", "is_text", "is_texts", "read_yaml", "stamp"]


def stamp(path: Path) -> tuple[int, int, int] | None:
    """What is another when a file has changed; None for one that is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def read_yaml(path: Path, name: str) -> object:
    """The content of a file, whose kind is `name` for sentences.

    Raises:
        ConfigError: It can't be read or is no YAML.
        UnsupportedError: PyYAML is not installed.
    """
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"a {name} needs PyYAML, which is not installed; pip install 'mindspore-asd[web]' brings it."
        ) from error
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the {name}", str(path), f"it can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the {name}", str(path), "it must be text in UTF-8") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # Without the parser's own words: they quote the line, and that may hold a secret.
        mark = getattr(error, "problem_mark", None)
        place = f"; line {mark.line + 1}, column {mark.column + 1} is not" if mark is not None else ""
        raise ConfigError(f"the {name}", str(path), f"it must be YAML{place}") from None


class Section:
    """A part of a file, a mapping.

    Args:
        content: What stands there; None for an empty part.
        path: The file.
        name: Of the part; empty for all of the file.

    Attributes:
        content: The mapping.

    Raises:
        ConfigError: It is no mapping.
    """

    def __init__(self, content: object, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        if content is None:
            content = {}
        if not isinstance(content, dict):
            raise ConfigError(
                f"{name or 'the content'} in {path}", type(content).__name__, "it must be a mapping of keys to values"
            )
        self.content: dict[Any, Any] = content

    def wrong(self, key: str, value: object, valid: str) -> ConfigError:
        """The error that the value of a key is not valid."""
        return ConfigError(f"{self._full(key)} in {self.path}", value, valid)

    def check(self, known: tuple[str, ...], unsupported: Mapping[str, str]) -> None:
        """Refuses keys that are not known, and by name those that others know; there it says what is valid instead."""
        for key in self.content:
            if key in unsupported:
                raise UnsupportedError(f"{self._full(key)} in {self.path} {unsupported[key]}.")
            if key not in known:
                raise ConfigError(f"a key in {self.path}", self._full(key), f"valid are {', '.join(known)}")

    def section(self, key: str) -> Section:
        """The part under a key."""
        return Section(self.content.get(key), self.path, key)

    def get(self, key: str, default: Any, accepts: Callable[[Any], bool], valid: str) -> Any:
        """The value of a key, or the default, if `accepts` says that it is valid."""
        value = self.content.get(key)
        if value is None:
            return default
        if not accepts(value):
            raise self.wrong(key, value, valid)
        return value

    def _full(self, key: object) -> str:
        return f"{self.name}.{key}" if self.name else str(key)


def is_text(value: object) -> bool:
    """Whether it is a text in one line."""
    return isinstance(value, str) and value.isprintable()


def is_texts(value: object) -> bool:
    """Whether it is a list of such texts."""
    return isinstance(value, list) and all(map(is_text, value))


def is_flag(value: object) -> bool:
    """Whether it is true or false."""
    return isinstance(value, bool)
