"""Common base of the demo's parts: they train, print what happens, and check the result."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from asd.cli.shared.progress import Bar


class Story:
    """Part of the demo.

    Args:
        args: The options of the command.
        out: Folder for its files.
    """

    def __init__(self, args: argparse.Namespace, out: Path) -> None:
        self.args, self.out = args, out

    def say(self, text: str) -> None:
        """Prints a line, unless the result is printed as JSON."""
        if not self.args.json:
            print(text, flush=True)

    def train(self, label: str, steps: int, **options: Any) -> Any:
        """Trains a small Llama, see `asd.operators.drill.workload`."""
        from asd.operators.drill import workload

        workload.use_mode(self.args.mode)
        bar = Bar(label, steps, silent=self.args.json)
        tell = lambda step, loss: bar.show(step, f"{step}/{steps} steps, loss {loss:.4f}")  # noqa: E731
        done = workload.train(workload.SMALL, steps, tell=tell, **options)
        bar.end()
        return done

    def tell_checks(self, checks: dict[str, bool]) -> None:
        """Prints which checks passed and which failed."""
        for check, came_true in checks.items():
            self.say(f"   {'yes' if came_true else 'NO '}  {check}")
