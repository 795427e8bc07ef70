"""What the classic `set_dump_switch` is called with, as the settings of a debugger."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence

from asd.dumps.record.debugger_config import DebuggerConfig
from asd.errors import ConfigError

__all__ = ["KERNELS", "MODES", "data_mode_of", "switched", "todays_name"]

_LOG = logging.getLogger("asd")
MODES = ("all", "list", "range", "stack", "api_list", "api_stack", "acl")
_PARTS = ("all", "forward", "backward", "input", "output")
_PREFIXES = ("Functional", "Tensor", "Mint", "MintFunctional", "Primitive", "Torch")
KERNELS = (
    '"acl" asks for the data of the kernels below an API, which only Ascend\'s own dump has '
    "(MINDSPORE_DUMP_CONFIG): the inputs and outputs of the APIs themselves are dumped."
)


def switched(
    before: DebuggerConfig, mode: str, scope: Sequence[str], api_list: Sequence[str], filter_switch: str,
    dump_mode: str | Sequence[str], *, summary_only: bool,
) -> DebuggerConfig:  # fmt: skip
    """The settings of a dump from now on.

    Args:
        before: What `register_hook` set up.
        mode: One of `MODES`.
        scope: Names of APIs, in the older style or today's.
        api_list: Parts of names.
        filter_switch: `ON` leaves out all that is no floating-point tensor.
        dump_mode: Of `all`, `forward`, `backward`, `input` and `output` one or several.
        summary_only: No tensors are written.

    Raises:
        ConfigError: A value is wrong.
    """
    if mode not in MODES:
        raise ConfigError("mode", mode, f"valid is {', '.join(MODES)}")
    if filter_switch not in ("ON", "OFF"):
        raise ConfigError("filter_switch", filter_switch, "valid is ON or OFF")
    if mode == "acl":
        _LOG.warning("mode %s", KERNELS)
    names = [todays_name(name) for name in scope]
    if mode == "range" and len(names) != 2:
        raise ConfigError("scope", names, "valid with the mode range is the first and the last API")
    if mode == "api_list" and not (api_list or names):
        raise ConfigError("api_list", list(api_list), "valid with the mode api_list is a part of the names of APIs")
    is_range = mode == "range" or (mode == "stack" and len(names) == 2)
    listed = list(api_list) or names if mode == "api_list" else names
    inner: dict[str, object] = {"data_mode": data_mode_of(dump_mode)}
    if is_range:
        inner["scope"] = names
    elif mode in ("list", "stack", "acl", "api_list"):
        inner["list"] = listed
    task = "structure" if mode == "stack" else "statistics" if summary_only else before.task
    content = {"task": task, "dump_path": str(before.dump_path), "level": before.level, task: inner}
    return dataclasses.replace(DebuggerConfig.of(content, "set_dump_switch"), floats_only=filter_switch == "ON")


def data_mode_of(dump_mode: str | Sequence[str]) -> list[str]:
    """The key `data_mode` of a config.json.

    Raises:
        ConfigError: It is none of the parts of a dump.
    """
    parts = [dump_mode] if isinstance(dump_mode, str) else list(dump_mode)
    if not parts or not all(part in _PARTS for part in parts):
        raise ConfigError("dump_mode", dump_mode, f"valid is {', '.join(_PARTS)}, or a list of some")
    return ["all"] if "all" in parts else parts


def todays_name(name: str) -> str:
    """Today's form of an API's name.

    >>> todays_name("Functional_linear_145_backward")
    'Functional.linear.145.backward'
    """
    prefix, _, rest = name.partition("_")
    if "." in name or prefix not in _PREFIXES:
        return name
    direction = next((each for each in ("_forward", "_backward") if rest.endswith(each)), "")
    rest = rest[: len(rest) - len(direction)]
    api, _, number = rest.rpartition("_")
    if prefix == "Primitive":  # of `Primitive_reshape_flat_Reshape_0` the class is the last word
        api = ".".join(api.rsplit("_", 1))
    return f"{prefix}.{api}.{number}{direction.replace('_', '.')}" if number.isdigit() else name
