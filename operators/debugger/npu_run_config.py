"""Overflow collection as scripts of the TensorFlow adapter ask for it: `NPURunConfig`, and the options of a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asd.errors import ConfigError
from asd.operators.debugger.dump_config import DumpConfig

__all__ = ["NPURunConfig", "dump_config_of"]

_DUMP_KEYS = ("enable_dump", "dump_path", "enable_dump_debug", "dump_debug_mode")
_FLAGS = ("enable_dump", "enable_dump_debug")


class NPURunConfig:
    """The settings of a training, of which `PrecisionDebugger` takes those of the dump.

    Args:
        dump_config: What is dumped; None: nothing.
        others: What TensorFlow alone needs, such as `session_config`; nothing is done with it.

    Raises:
        ConfigError: `dump_config` is none.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> config = NPURunConfig(dump_config=DumpConfig(enable_dump_debug=True, dump_path=folder))
        >>> config.dump_config.settings().task
        'overflow_check'
    """

    def __init__(self, *, dump_config: DumpConfig | None = None, **others: Any) -> None:
        if dump_config is not None and not isinstance(dump_config, DumpConfig):
            raise ConfigError("dump_config", type(dump_config).__name__, "valid is a DumpConfig")
        self.dump_config = dump_config
        self.others = others


def dump_config_of(parameter_map: Mapping[str, Any]) -> DumpConfig:
    """The `DumpConfig` that the `parameter_map` of a session's optimizer `NpuOptimizer` asks for.

    Args:
        parameter_map: By key a value, or what holds one as TensorFlow's map does: `.b` for a flag, `.s` for bytes. Keys
            that are not of the dump, such as `use_off_line`, are passed over.

    Raises:
        ConfigError: A value is wrong; see `DumpConfig`.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> options = {"use_off_line": True, "enable_dump_debug": True, "dump_path": folder.encode()}
        >>> dump_config_of(options).dump_debug_mode
        'all'
    """
    chosen = {}
    for key in _DUMP_KEYS:
        if key in parameter_map:
            value = parameter_map[key]
            chosen[key] = _plain(getattr(value, "b" if key in _FLAGS else "s", value), key)
    return DumpConfig(**chosen)


def _plain(value: Any, key: str) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(key, value, "valid is text in UTF-8") from error
