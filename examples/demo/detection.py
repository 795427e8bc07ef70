"""First parts of the demo: a corrupted gradient is found, refused and survived; a second one is hard to see."""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from asd.config import Config
from asd.demo.story import Story
from asd.event import Event
from asd.injection import Fault
from asd.rundir.disk import write_whole
from asd.verdict import Level

_STEPS = 40
_FAULT = "output:layers.0.ffn_norm:factor=4:step=30"
"""A whole tensor four times too large: no value is enormous, and all are finite."""


class Detection(Story):
    """Three trainings: without detection, with it, and with a fault.

    Args:
        args: The options of the command.
        out: Empty folder for its files.
        bar: Makes a progress bar.
        config: Settings of detection.
        fault: Fault to inject.
    """

    def __init__(
        self, args: argparse.Namespace, out: Path, bar: Callable[..., Any], config: Config, fault: Fault
    ) -> None:
        from asd.exporters.bundle.sink import open_evidence
        from asd.exporters.run_files.event_log import open_event_log
        from asd.exporters.run_files.log import LogSink
        from asd.exporters.run_files.status_file import open_status_file
        from asd.operators.ranks.origin import origin_of_process

        super().__init__(args, out, bar)
        self._config = config = replace(config, run=config.name_of_run(), run_dir=str(out))
        self._fault, self._steps = fault, args.steps
        self._events: list[Event] = []
        files = (open_event_log, open_evidence, open_status_file)
        self._sinks: list[Any] = [self._events.append, *(each(config, origin_of_process(config)) for each in files)]
        if not args.json:
            self._sinks.append(LogSink())
            logging.getLogger("asd").setLevel(logging.WARNING)  # the story prints the rest

    def tell(self) -> dict[str, Any]:
        """Runs the story; returns the checks and the paths of the files."""
        from asd.demo import llama

        fault, steps = self._fault, self._steps
        llama.use_mode(self.args.mode)
        llama.check(fault, self._config)
        self.say(f"mindformers LlamaForCausalLM, {self.args.mode} mode, {steps} steps, rule {self._config.rule}\n")
        self.say("1. The same training twice: without detection, then with it.")
        bare = self.train("without detection", steps, digest_after=fault.step)
        clean = self._train("with detection")
        same, alarms = bare.losses == clean.losses and bare.digest == clean.digest, len(self._events)
        judged = sum(map(len, clean.history.values()))
        self.say(f"   {len(clean.history)} checkpoints, {judged} values judged, {alarms} alarms.")
        self.say(f"   Losses and weights are {'equal bit for bit' if same else 'NOT EQUAL'}.\n")
        self.say(f"2. Once more, with a fault: {fault}")
        folder = self.out / "checkpoints"
        broken = self._train("with the fault", fault=fault, folder=folder, digest_after=fault.step - 1)
        for change in broken.changes[:1]:
            self.say(f"   what it did: {broken.where}{list(change.at)} {change.before:.6g} -> {change.after:.6g}")
        event = broken.anomaly
        # Digest of the step before, or of the step without the fault if a confirmation re-run healed it.
        kept_away = event is not None and event.harmless and broken.digest in (broken.digest_then, bare.digest_then)
        struck = broken.changes[0].step if broken.changes else fault.step
        checks = {
            "detection changes no number": same,
            "no alarm in the clean run": alarms == 0,
            "the fault was found at its step": event is not None and event.step == struck,
            "at its checkpoint": event is not None and event.checkpoint == broken.where,
            "the bad update was kept away from weights and optimizer": kept_away,
        }
        losses = {"without detection": bare.losses, "with detection": clean.losses}
        history = broken.history
        if event is not None:
            resumed = self._resume(folder)
            missing = [float("nan")] * (steps - len(resumed.losses))
            losses["resumed after the fault"] = missing + resumed.losses
            history = {name: [*history.get(name, []), *values] for name, values in resumed.history.items()}
            checks["the resumed training ends where the clean one does"] = resumed.digest == clean.digest
        picture, report = self._draw(history, losses), self._report()
        self.say("")
        self.tell_checks(checks)
        self.say(
            f"\n   Events:   {self.out / 'events-rank0.jsonl'}\n   Picture:  {picture}\n"
            f"   Evidence: {event.evidence if event is not None else 'none'}\n   Report:   {report}"
        )
        return {
            "checks": checks,
            "event": json.loads(event.to_json()) if event is not None else None,
            "final_loss": losses[list(losses)[-1]][-1],
            "clean_loss": clean.losses[-1],
            "picture": str(picture),
            "report": str(report),
        }

    def _train(self, label: str, **options: Any) -> Any:
        return self.train(label, self._steps, config=self._config, sinks=self._sinks, **options)

    def _resume(self, folder: Path) -> Any:
        files = sorted(folder.glob("*.ckpt"), key=lambda file: file.stat().st_mtime)
        self.say("\n3. The fault is gone; training resumes from the last checkpoint, with the rules' memory.")
        return self._train("resumed", resume_from=files[-1] if files else None)

    def _draw(self, history: Any, losses: dict[str, list[float]]) -> Path:
        from asd.demo.pictures import draw_history

        picture = self.out / "feature_values.svg"
        title = f"Feature values of a Llama, rule {self._config.rule}; {self._fault}"
        draw_history(picture, history, losses=losses, title=title)
        return picture

    def _report(self) -> Path:
        from asd.exporters.report.data import read_run
        from asd.exporters.report.page import render

        report = self.out / "report.html"
        write_whole(report, render(read_run(self.out), report, now=time.time()))
        return report


class Unseen(Story):
    """Three trainings: without a fault, with it by the document's rule, and with it by the default."""

    def tell(self) -> dict[str, bool]:
        """Runs the story; returns the checks."""
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
        """Trains; returns the result and the first-level events."""
        events: list[Event] = []
        done = self.train(label, _STEPS, config=config, sinks=[events.append], fault=fault)
        return done, [event for event in events if event.level is Level.ERROR]
