"""What the parts of the demo have in common: they train, say what happens, and check what came true."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from asd.cli.shared.progress import Progress

__all__ = ["Story"]


class Story:
    """One part of the demo.

    Args:
        args: The options of the command.
        out: Folder for what it leaves.
    """

    def __init__(self, args: argparse.Namespace, out: Path) -> None:
        self.args, self.out = args, out

    def say(self, text: str) -> None:
        """Prints a line, unless the result is wanted as JSON."""
        if not self.args.json:
            print(text, flush=True)

    def progress(self, label: str, steps: int) -> Progress | None:
        """Shows how far a training is; None where nothing is printed."""
        return None if self.args.json else Progress(label, steps)

    def train(self, label: str, steps: int, **options: Any) -> Any:
        """Trains a small Llama, see `asd.operators.drill.workload`."""
        from asd.operators.drill import workload

        workload.use_mode(self.args.mode)
        progress = self.progress(label, steps)
        done = workload.train(workload.SMALL.with_(seed=self.args.seed), steps, tell=progress, **options)
        if progress is not None:
            progress.close()
        return done

    def tell_checks(self, checks: dict[str, bool]) -> None:
        """Prints what came true and what not."""
        for check, came_true in checks.items():
            self.say(f"   {'yes' if came_true else 'NO '}  {check}")
