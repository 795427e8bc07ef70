"""The second part of the demo: a fault too small for the document's rule, which the default finds and heals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asd.cli.shared.story import Story
from asd.config import Config
from asd.event import Event
from asd.injection import Fault
from asd.verdict import Level

__all__ = ["Unseen"]

_STEPS = 40
_FAULT = "output:layers.0.ffn_norm:factor=4:step=30"
"""A whole tensor four times too large: nothing is enormous, and nothing is no number."""


class Unseen(Story):
    """Trains three times: without a fault, with it by the document's rule, and with it by the default."""

    def tell(self) -> dict[str, bool]:
        """Tells the story; returns what came true."""
        self.say(f"\nA fault that the document's rule does not see: {_FAULT}")
        fault = Fault.parse(_FAULT)
        clean, _ = self._train("without a fault", Config(), None)
        missed, alarms = self._train("ASD_PROTECTION=document", self._config("document"), fault)
        healed, events = self._train("the default", self._config("full"), fault)
        checks = {
            "the document's rule does not see it, and the training ends elsewhere": not alarms
            and missed.digest != clean.digest,
            "the default finds it in its step": {event.step for event in events} == {missed.changes[0].step},
            "it makes the step again, and weights and optimizer end bit for bit as without a fault": healed.digest
            == clean.digest,
        }
        for event in events[:1]:
            self.say(f"   {event.checkpoint}, step {event.step}: {event.reason}")
        ends = zip(("without a fault", "document", "default"), (clean, missed, healed), strict=True)
        self.say("   final loss " + ", ".join(f"{name} {run.losses[-1]:.6f}" for name, run in ends))
        self.tell_checks(checks)
        return {f"unseen: {check}": came_true for check, came_true in checks.items()}

    def _config(self, protection: str) -> Config:
        return Config(enable=1, on_anomaly="skip", run_dir=str(self.out / "unseen"), protection=protection)

    def _train(self, label: str, config: Config, fault: Fault | None) -> tuple[Any, Sequence[Event]]:
        """A training and its first-level events."""
        events: list[Event] = []
        done = self.train(label, _STEPS, config=config, sinks=[events.append], fault=fault)
        return done, [event for event in events if event.level is Level.ERROR]
