"""`MS_NPU_ASD_CONFIG`: the settings of the vendor's combined scheme, in its grammar and with its defaults.

Items are separated by commas, key and value by the first colon, or by the first `=` where there is no colon. Blanks
around them don't count, empty items are skipped, and of a key that comes twice the last one counts. What the vendor
replaces by a default, with a warning or in silence, is an error here, unknown keys included: a mistyped setting must
not pass unnoticed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

from asd.errors import ConfigError
from asd.rules.combined import UPPER_THRESH1, UPPER_THRESH2

__all__ = ["VARIABLE", "CombinedConfig"]

VARIABLE = "MS_NPU_ASD_CONFIG"
_LARGEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class CombinedConfig:
    """Settings of the combined scheme; checked when it is made.

    Attributes:
        enable: Whether gradients of parameters are sampled and judged.
        with_checksum: Whether strikes are counted and a strike-out switches the checksum on.
        cooldown: Minutes after a strike in which no other one counts, and that the checksum then runs; from 1.
        strikes_num: So many strikes in the window are a strike-out; from 1.
        strikes_window: Minutes that a strike counts; from 1.
        checksum_cooldown: Minutes from one start of the checksum to the next; from 1.
        upper_thresh1: Multiple of the mean that a value and its change must exceed for a strike; from 3.
        upper_thresh2: Multiple of the mean up to which a value is averaged; from 3.
        grad_sample_interval: Of the gradients, the first and then every so many-th is sampled; from 1.

    >>> CombinedConfig.parse("enable:true, strikes_num = 2").strikes_num
    2
    """

    enable: bool = False
    with_checksum: bool = False
    cooldown: int = 5
    strikes_num: int = 3
    strikes_window: int = 480
    checksum_cooldown: int = 180
    upper_thresh1: int = UPPER_THRESH1
    upper_thresh2: int = UPPER_THRESH2
    grad_sample_interval: int = 10

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not _accepts(field.name, value):
                raise ConfigError(f"{VARIABLE}: {field.name}", value, _valid(field.name))

    @classmethod
    def parse(cls, text: str) -> CombinedConfig:
        """Reads the text of the variable.

        Raises:
            ConfigError: An item is no pair, a key is unknown, or a value is not valid; the sentence names it.
        """
        names = [field.name for field in fields(cls)]
        given: dict[str, Any] = {}
        for item in filter(None, map(str.strip, text.split(","))):
            key, separator, value = item.partition(":" if ":" in item else "=")
            key, value = key.strip(), value.strip()
            if not separator or key not in names:
                raise ConfigError(VARIABLE, item, f"valid are key:value pairs with the keys {', '.join(names)}")
            parsed = _parse(key, value)
            if not _accepts(key, parsed):
                raise ConfigError(f"{VARIABLE}: {key}", value, _valid(key))
            given[key] = parsed
        return cls(**given)

    def __str__(self) -> str:
        changed = {field.name: getattr(self, field.name) for field in fields(self)}
        return ",".join(
            f"{name}:{str(value).lower()}" for name, value in changed.items() if value != getattr(_DEFAULT, name)
        )


def _smallest(name: str) -> int:
    return 3 if name.startswith("upper_thresh") else 1


def _is_switch(name: str) -> bool:
    return name in ("enable", "with_checksum")


def _parse(name: str, text: str) -> bool | int | None:
    if _is_switch(name):
        return {"true": True, "false": False}.get(text)
    return int(text) if re.fullmatch("[0-9]{1,10}", text, re.ASCII) else None


def _accepts(name: str, value: object) -> bool:
    if _is_switch(name):
        return isinstance(value, bool)
    return type(value) is int and _smallest(name) <= value <= _LARGEST


def _valid(name: str) -> str:
    if _is_switch(name):
        return "it must be true or false"
    return f"it must be a whole number from {_smallest(name)} to {_LARGEST}"


_DEFAULT = CombinedConfig()
