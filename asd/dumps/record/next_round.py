"""From the answer of one round to the config of the next: a few operators at a time, one module deeper each time.

A compiled graph whose every call is recorded takes long to compile. A round records the calls that one module makes
itself and the modules it holds. Where one of these is the first wrong one, the next round is inside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from asd.dumps.record.debugger_config import DebuggerConfig
from asd.dumps.record.selection import path_of
from asd.errors import ConfigError
from asd.rundir.disk import write_whole

__all__ = ["Rounds"]


class Rounds:
    """The rounds that a config.json describes.

    Args:
        file: The config.json of both runs.

    Attributes:
        inside: Path of the module that this round is inside; empty for the network.

    Raises:
        ConfigError: It is none, or its key `inside` is missing.
    """

    def __init__(self, file: Path) -> None:
        config = DebuggerConfig.read(file)
        if config.inside is None:
            raise ConfigError("--rounds", str(file), 'its task needs the key "inside": "" for the first round')
        self.inside, self._file = config.inside, file

    def deeper(self, call: str, recorded: Iterable[str]) -> str | None:
        """The path of the module that the next round is to be inside; None when there is nothing inside `call`.

        Args:
            call: The first wrong one.
            recorded: The names of all calls of this round.
        """
        wrong, start = path_of(call), f"{self.inside}." if self.inside else ""
        if not wrong or wrong == self.inside or not wrong.startswith(start):
            return None
        # The gradient of a parameter may be of a module further inside.
        paths = {path_of(name) or self.inside for name in recorded if ".parameters_grad." not in name}
        around = [path for path in paths - {self.inside} if f"{wrong}.".startswith(f"{path}.")]
        return min(around, key=len, default=wrong)

    def write(self, inside: str) -> None:
        """Makes the config that of the next round.

        Raises:
            OSError: The file can't be written.
        """
        content: dict[str, Any] = json.loads(self._file.read_text(encoding="utf-8-sig"))
        content[content.get("task", "statistics")]["inside"] = inside
        write_whole(self._file, json.dumps(content, indent=1) + "\n")
