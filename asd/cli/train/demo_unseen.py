"""The second part of the demo: a fault too small for the document's rule, which the default finds and heals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asd.cli.shared.progress import Progress
from asd.config import Config
from asd.event import Event
from asd.injection import Fault
from asd.verdict import Level

__all__ = ["Unseen"]

_STEPS = 40
_FAULT = "output:layers.0.ffn_norm:factor=4:step=30"
"""A whole tensor four times too large: nothing is enormous, and nothing is no number."""


class Unseen:
    """Trains three times: without a fault, with it by the document's rule, and with it by the default.

    Args:
        out: Folder of the demo.
        seed: For weights and data.
        mode: `graph` or `pynative`.
        is_quiet: Whether nothing is printed.
    """

    def __init__(self, out: Path, *, seed: int, mode: str, is_quiet: bool) -> None:
        from asd.operators.drill import workload

        workload.use_mode(mode)
        self._workload, self._size, self._is_quiet = workload, workload.SMALL.with_(seed=seed), is_quiet
        self._config = Config(enable=1, on_anomaly="skip", run_dir=str(out / "unseen"))
        self._document = Config(enable=1, on_anomaly="skip", run_dir=str(out / "unseen"), protection="document")

    def tell(self) -> dict[str, Any]:
        """Tells the story; returns what came true."""
        self._say(f"\nA fault that the document's rule does not see: {_FAULT}")
        clean, _ = self._train("without a fault", Config())
        missed, alarms = self._train("ASD_PROTECTION=document", self._document, Fault.parse(_FAULT))
        healed, events = self._train("the default", self._config, Fault.parse(_FAULT))
        checks = {
            "the document's rule does not see it, and the training ends elsewhere": not alarms
            and missed.digest != clean.digest,
            "the default finds it in its step": {event.step for event in events} == {missed.changes[0].step},
            "it makes the step again, and weights and optimizer end bit for bit as without a fault": healed.digest
            == clean.digest,
        }
        for event in events[:1]:
            self._say(f"   {event.checkpoint}, step {event.step}: {event.reason}")
        ends = zip(("without a fault", "document", "default"), (clean, missed, healed), strict=True)
        self._say("   final loss " + ", ".join(f"{name} {run.losses[-1]:.6f}" for name, run in ends))
        for check, came_true in checks.items():
            self._say(f"   {'yes' if came_true else 'NO '}  {check}")
        return {"checks": {f"unseen: {check}": came_true for check, came_true in checks.items()}}

    def _train(self, label: str, config: Config, fault: Fault | None = None) -> tuple[Any, Sequence[Event]]:
        """A training and its first-level events."""
        events: list[Event] = []
        progress = None if self._is_quiet else Progress(label, _STEPS)
        done = self._workload.train(
            self._size, _STEPS, config=config, sinks=[events.append], fault=fault, tell=progress
        )
        if progress is not None:
            progress.close()
        return done, [event for event in events if event.level is Level.ERROR]

    def _say(self, text: str) -> None:
        if not self._is_quiet:
            print(text, flush=True)
