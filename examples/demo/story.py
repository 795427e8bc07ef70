"""Common base of the demo's parts: they train, print what happens, and check the result."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any


class Story:
    """Part of the demo.

    Args:
        args: The options of the command.
        out: Folder for its files.
        bar: Makes a progress bar from its label and its total.
    """

    def __init__(self, args: argparse.Namespace, out: Path, bar: Callable[..., Any]) -> None:
        self.args, self.out, self.bar = args, out, partial(bar, silent=args.json)

    def say(self, text: str) -> None:
        """Prints a line, unless the result is printed as JSON."""
        if not self.args.json:
            print(text, flush=True)

    def train(self, label: str, steps: int, **options: Any) -> Any:
        """Trains a small Llama, see `asd.demo.llama`."""
        from asd.demo import llama

        llama.use_mode(self.args.mode)
        bar = self.bar(label, steps)
        tell = lambda step, loss: bar.show(step, f"{step}/{steps} steps, loss {loss:.4f}")  # noqa: E731
        done = llama.train(llama.SMALL, steps, tell=tell, **options)
        bar.end()
        return done

    def tell_checks(self, checks: dict[str, bool]) -> None:
        """Prints which checks passed and which failed."""
        for check, came_true in checks.items():
            self.say(f"   {'yes' if came_true else 'NO '}  {check}")
