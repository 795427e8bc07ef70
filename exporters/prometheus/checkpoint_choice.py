"""Which checkpoints get series of their own: two each, so 8 ranks with 200 checkpoints make 3,200."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from asd.errors import ConfigError

__all__ = ["CheckpointChoice"]

VALID = (
    "it must be none, all, top:N for the N checkpoints of each rank that are nearest to their limit (N from 1 to "
    "10000), or a regular expression that is found in the names, for example attention_norm$"
)
_MOST = 10_000


@dataclass(frozen=True, slots=True)
class CheckpointChoice:
    """Chooses checkpoints by name or by how near they are to their limit.

    Attributes:
        top: So many of each rank; 0 for any number.
        pattern: Those in whose name it is found; None for no checkpoint at all.

    >>> CheckpointChoice.parse("top:1").choose({"a": (1.0, 10.0), "b": (5.0, 10.0)})
    ['b']
    """

    top: int = 0
    pattern: re.Pattern[str] | None = None

    @classmethod
    def parse(cls, text: str, option: str = "--checkpoints") -> CheckpointChoice:
        """Reads `none`, `all`, `top:N` or a regular expression.

        Args:
            text: The text.
            option: What an error names.

        Raises:
            ConfigError: It is none of these.
        """
        if text == "none":
            return cls()
        if text == "all":
            return cls(pattern=re.compile(""))
        word, colon, number = text.partition(":")
        try:
            if word == "top" and colon:
                if not re.fullmatch(r"[0-9]{1,5}", number) or not 1 <= int(number) <= _MOST:
                    raise ConfigError(option, text, VALID)
                return cls(top=int(number), pattern=re.compile(""))
            if text:
                return cls(pattern=re.compile(text))
        except (re.error, RecursionError, OverflowError) as error:
            raise ConfigError(option, text, f"{VALID}; {error}") from error
        raise ConfigError(option, text, VALID)

    def choose(self, checkpoints: Mapping[str, tuple[float, float]]) -> list[str]:
        """The chosen names, sorted.

        Args:
            checkpoints: Of one rank: value and first-level limit of each.
        """
        if self.pattern is None:
            return []
        names = [name for name in checkpoints if self.pattern.search(name)]
        if self.top:
            names.sort(key=lambda name: (-_ratio(*checkpoints[name]), name))
            del names[self.top :]
        return sorted(names)


def _ratio(value: float, limit: float) -> float:
    """How near `value` is to `limit`: 1 is at the limit, and what is not finite is beyond all."""
    if not math.isfinite(value):
        return math.inf
    if math.isinf(limit):
        return 0.0
    return value / limit if limit > 0 else math.inf
