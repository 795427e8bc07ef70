"""Settings of overflow collection under the names of the TensorFlow adapter: an estimator's and a session's."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mindspore import context

from asd.dumps.record.debugger_config import CHECK_MODES, DebuggerConfig
from asd.errors import ConfigError

_MODES = ("all", "aicore_overflow", "atomic_overflow")
_DUMP_KEYS = ("enable_dump", "dump_path", "enable_dump_debug", "dump_debug_mode")
_FLAGS = ("enable_dump", "enable_dump_debug")


class DumpConfig:
    """Collection of overflows (`enable_dump_debug`) or of all data (`enable_dump`), not both.

    `PrecisionDebugger(DumpConfig(...))` makes a debugger from it.

    Args:
        enable_dump: Dump the data of all APIs.
        dump_path: An existing folder that this user can read and write.
        enable_dump_debug: Collect overflows.
        dump_debug_mode: `all`, `aicore_overflow` or `atomic_overflow`; an Atlas A2 supports `all` only.
        overflow_nums: Overflows after which training ends; -1: never.

    Raises:
        ConfigError: A value is wrong, the folder does not exist, or both are requested.
    """

    def __init__(
        self,
        *,
        enable_dump: bool = False,
        dump_path: str | Path | None = None,
        enable_dump_debug: bool = False,
        dump_debug_mode: str = "all",
        overflow_nums: int = -1,
    ) -> None:
        for name, value in (("enable_dump", enable_dump), ("enable_dump_debug", enable_dump_debug)):
            if not isinstance(value, bool):
                raise ConfigError(name, value, "it must be True or False")
        if enable_dump and enable_dump_debug:
            raise ConfigError("enable_dump_debug", value=True, valid="it must not be on together with enable_dump")
        if dump_debug_mode not in _MODES:
            raise ConfigError("dump_debug_mode", dump_debug_mode, f"it must be one of {', '.join(_MODES)}")
        if dump_debug_mode != "all" and _is_atlas_a2():
            raise ConfigError("dump_debug_mode", dump_debug_mode, "an Atlas A2 supports only all")
        self.enable_dump, self.enable_dump_debug, self.dump_debug_mode = enable_dump, enable_dump_debug, dump_debug_mode
        self.overflow_nums = overflow_nums
        self.dump_path = _checked(dump_path) if enable_dump or enable_dump_debug else Path(dump_path or ".")

    def settings(self) -> DebuggerConfig:
        """Returns the settings of a debugger.

        Raises:
            ConfigError: Neither is requested, or `overflow_nums` is wrong.
        """
        if not (self.enable_dump or self.enable_dump_debug):
            raise ConfigError("enable_dump_debug", value=False, valid="it or enable_dump must be True")
        if self.enable_dump:
            return DebuggerConfig(dump_path=self.dump_path, task="tensor")
        inner = {"overflow_nums": self.overflow_nums, "check_mode": CHECK_MODES[self.dump_debug_mode]}
        content = {"task": "overflow_check", "dump_path": str(self.dump_path), "overflow_check": inner}
        return DebuggerConfig.of(content, "DumpConfig")


def _checked(path: str | Path | None) -> Path:
    if path is None:
        raise ConfigError("dump_path", path, "it must be an existing folder")
    folder = Path(path)
    if not folder.is_dir():
        raise ConfigError("dump_path", str(path), "it must be an existing folder")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError("dump_path", str(path), "it must be a folder that this user can read and write")
    return folder


def _is_atlas_a2() -> bool:
    if context.get_context("device_target") != "Ascend":
        return False
    from mindspore import hal  # loading it looks for devices

    return "910B" in str(hal.get_device_name(0))


class NPURunConfig:
    """Settings of a training, of which `PrecisionDebugger` uses those of the dump.

    Args:
        dump_config: Settings of the dump; None: no dump.
        others: Settings for TensorFlow alone, such as `session_config`; ignored.

    Raises:
        ConfigError: `dump_config` is not a `DumpConfig`.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> config = NPURunConfig(dump_config=DumpConfig(enable_dump_debug=True, dump_path=folder))
        >>> config.dump_config.settings().task
        'overflow_check'
    """

    def __init__(self, *, dump_config: DumpConfig | None = None, **others: Any) -> None:
        if dump_config is not None and not isinstance(dump_config, DumpConfig):
            raise ConfigError("dump_config", type(dump_config).__name__, "it must be a DumpConfig")
        self.dump_config = dump_config


def dump_config_of(parameter_map: Mapping[str, Any]) -> DumpConfig:
    """Returns the `DumpConfig` in the `parameter_map` of a session's optimizer `NpuOptimizer`.

    Args:
        parameter_map: By key a value, or an object that holds one as in TensorFlow's map: `.b` for a flag, `.s` for
            bytes. Keys of other settings, such as `use_off_line`, are ignored.

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
        raise ConfigError(key, value, "it must be text in UTF-8") from error
