"""Options of isolators: each may be given as a Python value or as the text that a command line has."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from asd.errors import ConfigError
from asd.isolator import Device

__all__ = ["NodeNames", "choice", "flag", "pairs", "seconds", "text"]

_FLAGS = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}
_LONGEST = 3600.0


def seconds(name: str, value: object, smallest: float = 0.01, largest: float = _LONGEST) -> float:
    """`value` as a number of seconds.

    Raises:
        ConfigError: It is none, or out of its range.
    """
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not smallest <= number <= largest:
        raise ConfigError(
            f"the option {name}", value, f"it must be a number of seconds from {smallest:g} to {largest:g}"
        )
    return number


def flag(name: str, value: object) -> bool:
    """`value` as true or false.

    Raises:
        ConfigError: It is neither.
    """
    if isinstance(value, bool):
        return value
    found = _FLAGS.get(value.lower()) if isinstance(value, str) else None
    if found is None:
        raise ConfigError(f"the option {name}", value, "it must be true or false")
    return found


def choice(name: str, value: object, valid: tuple[str, ...]) -> str:
    """`value`, which must be one of `valid`.

    Raises:
        ConfigError: It is none of them.
    """
    if not isinstance(value, str) or value not in valid:
        raise ConfigError(f"the option {name}", value, f"valid are {', '.join(valid)}")
    return value


def text(name: str, value: object, pattern: str, valid: str) -> str:
    """`value`, which must match `pattern` as a whole; `valid` says so in words.

    Raises:
        ConfigError: It does not.
    """
    if not isinstance(value, str) or not re.fullmatch(pattern, value, re.ASCII):
        raise ConfigError(f"the option {name}", value, valid)
    return value


def pairs(name: str, value: object) -> dict[str, str]:
    """`value` as a mapping: one already, or a text such as `host1=node1,host2=node2`.

    Raises:
        ConfigError: It is neither.
    """
    if isinstance(value, str):
        parts = [part.partition("=") for part in value.split(",") if part.strip()]
        found: Mapping[Any, Any] = {left.strip(): right.strip() for left, _, right in parts}
    else:
        found = value if isinstance(value, Mapping) else {"": ""}
    if not all(isinstance(item, str) and item for pair in found.items() for item in pair):
        raise ConfigError(
            f"the option {name}", value, "it must be a mapping, or a text such as host1=node1,host2=node2"
        )
    return dict(found)


class NodeNames:
    """What the engine calls a host.

    Args:
        nodes: Hosts that the engine knows by another name, and those names; any other keeps its own.
        strip_domain: Whether a host `n1.example` that is not in `nodes` is called `n1`.

    Raises:
        ConfigError: An argument is not valid.
    """

    def __init__(self, nodes: Mapping[str, str] | str, strip_domain: bool | str) -> None:  # noqa: FBT001 - an option like any other
        self._nodes = pairs("nodes", nodes)
        self._strip = flag("strip_domain", strip_domain)

    def __call__(self, device: Device) -> str:
        """The node of `device`."""
        host = device.host
        return self._nodes.get(host) or (host.partition(".")[0] if self._strip else host)
