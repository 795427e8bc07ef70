"""The first part of the demo: one process trains, a gradient is corrupted, found, refused and survived."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from asd.cli.shared.progress import Progress
from asd.config import Config
from asd.event import Event
from asd.injection import Fault
from asd.rundir.disk import write_whole

__all__ = ["Detection"]


class Detection:
    """Trains three times: without detection, with it, and with a fault.

    Args:
        config: How to detect.
        fault: What goes wrong.
        args: The options of the command.
        out: An empty folder for what it leaves.
    """

    def __init__(self, config: Config, fault: Fault, args: argparse.Namespace, out: Path) -> None:
        from asd.exporters.bundle.sink import open_evidence
        from asd.exporters.run_files.event_log import open_event_log
        from asd.exporters.run_files.log import LogSink
        from asd.exporters.run_files.status_file import open_status_file
        from asd.exporters.run_files.values import open_recording
        from asd.operators.drill import workload
        from asd.operators.ranks.origin import origin_of_process

        workload.use_mode(args.mode)
        self.train = workload.train
        self.size = workload.SMALL.with_(seed=args.seed)
        config = replace(config, run=config.name_of_run(), run_dir=str(out))
        self.config, self.fault, self.steps, self.out = config, fault, args.steps, out
        self.is_quiet = args.json
        self.mode = args.mode
        self.events: list[Event] = []
        files = (open_event_log, open_evidence, open_status_file, open_recording)
        self.sinks: list[Any] = [self.events.append, *(each(config, origin_of_process(config)) for each in files)]
        if not self.is_quiet:
            self.sinks.append(LogSink())
            logging.getLogger("asd").setLevel(logging.WARNING)  # the story tells the rest

    def tell(self) -> dict[str, Any]:
        """Tells the story; returns what came true and where the pieces are."""
        self._say(f"mindformers LlamaForCausalLM, {self.mode} mode, {self.steps} steps, rule {self.config.rule}\n")
        self._say("1. The same training twice: without detection, then with it.")
        bare = self._train("without detection", digest_after=self.fault.step)
        clean = self._train("with detection", config=self.config, sinks=self.sinks)
        same = bare.losses == clean.losses and bare.digest == clean.digest
        alarms = len(self.events)
        judged = sum(map(len, clean.history.values()))
        self._say(f"   {len(clean.history)} checkpoints, {judged} values judged, {alarms} alarms.")
        self._say(f"   Losses and weights are {'equal bit for bit' if same else 'NOT EQUAL'}.\n")
        self._say(f"2. Once more, with a fault: {self.fault}")
        broken = self._train(
            "with the fault",
            config=self.config,
            sinks=self.sinks,
            fault=self.fault,
            folder=self.out / "checkpoints",
            digest_after=self.fault.step - 1,
        )
        return self._ending(bare, clean, broken, same=same, alarms=alarms)

    def _ending(self, bare: Any, clean: Any, broken: Any, *, same: bool, alarms: int) -> dict[str, Any]:
        change, event = (broken.changes or [None])[0], broken.anomaly
        if change is not None:
            self._say(
                f"   what the fault did: {broken.where}{list(change.at)} {change.before:.6g} -> {change.after:.6g}"
            )
        # Of the step before, or, where a second look made the step again, of the step without the fault.
        kept_away = event is not None and event.refused and broken.digest in (broken.digest_then, bare.digest_then)
        checks = {
            "detection changes no number": same,
            "no alarm in the clean run": alarms == 0,
            "the fault was found at its step": event is not None and event.step == self.fault.step,
            "at its checkpoint": event is not None and event.checkpoint == broken.where,
            "the bad update was kept away from weights and optimizer": kept_away,
        }
        losses = {"without detection": bare.losses, "with detection": clean.losses}
        history = broken.history
        if event is not None:
            resumed = self._resume()
            missing = [float("nan")] * (self.steps - len(resumed.losses))
            losses["resumed after the fault"] = missing + resumed.losses
            history = {name: [*history.get(name, []), *values] for name, values in resumed.history.items()}
            checks["the resumed training ends where the clean one does"] = resumed.digest == clean.digest
        picture, report = self._draw(history, losses), self._report()
        self._say("")
        for check, came_true in checks.items():
            self._say(f"   {'yes' if came_true else 'NO '}  {check}")
        self._say(
            f"\n   Events:   {self.out / 'events-rank0.jsonl'}\n   Picture:  {picture}\n"
            f"   Evidence: {event.evidence if event is not None else 'none'}\n   Report:   {report}\n"
        )
        return {
            "checks": checks,
            "event": json.loads(event.to_json()) if event is not None else None,
            "final_loss": losses[list(losses)[-1]][-1],
            "clean_loss": clean.losses[-1],
            "picture": str(picture),
            "report": str(report),
        }

    def _resume(self) -> Any:
        files = sorted((self.out / "checkpoints").glob("*.ckpt"), key=lambda file: file.stat().st_mtime)
        self._say("\n3. The fault is gone; training resumes from the last checkpoint, with the rules' memory.")
        return self._train("resumed", config=self.config, sinks=self.sinks, resume_from=files[-1] if files else None)

    def _train(self, label: str, **options: Any) -> Any:
        if self.is_quiet:
            return self.train(self.size, self.steps, **options)
        progress = Progress(label, self.steps)
        done = self.train(self.size, self.steps, tell=progress, **options)
        progress.close()
        return done

    def _draw(self, history: Any, losses: dict[str, list[float]]) -> Path:
        from asd.exporters.pictures.values import draw_history

        picture = self.out / "feature_values.svg"
        title = f"Feature values of a Llama, rule {self.config.rule}; {self.fault}"
        draw_history(picture, history, losses=losses, title=title)
        return picture

    def _report(self) -> Path:
        from asd.exporters.report.data import read_run
        from asd.exporters.report.page import render

        report = self.out / "report.html"
        write_whole(report, render(read_run(self.out), report, now=time.time()))
        return report

    def _say(self, text: str) -> None:
        if not self.is_quiet:
            print(text, file=sys.stderr if self.is_quiet else sys.stdout, flush=True)
