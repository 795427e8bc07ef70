"""Shows examples in docstrings, `>>> ...`, as code in the API reference, where no heading stands above them."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension

_SESSION = re.compile(r"(?:^>>> .*\n?(?:^(?!\n).+\n?)*)+", re.MULTILINE)


def fenced(text: str) -> str:
    """`text` with each session at its margin between fences."""
    return _SESSION.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", text)


class Doctests(Extension):
    """Puts the sessions of every docstring between fences."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Called by griffe for each module, class and function."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
