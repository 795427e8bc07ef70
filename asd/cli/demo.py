"""Trains a real Llama of mindformers, corrupts one gradient, and shows how it is found, refused and survived."""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from asd.cli.progress import Progress
from asd.config import Config
from asd.errors import ConfigError
from asd.event import Event
from asd.injection import Fault
from asd.statefile import write_whole

__all__ = ["add_arguments", "quiet", "run"]

_EXAMPLES = """\
Examples:
  asd demo                                                 the story, in about a minute
  asd demo --rule adaptive --fault gradient:ffn_norm:flip=27:step=40
  asd demo --mode pynative --steps 40                      slower, the same story
  asd demo --json                                          the result for programs"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd demo`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("--steps", type=int, default=60, help="training steps, from 20 on (default %(default)s)")
    parser.add_argument(
        "--fault", default="gradient:layers.1.attention_norm:flip=30:step=45", metavar="SPEC",
        help="what goes wrong, target:where:pattern=amount:step=N (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--rule", help="which rule judges (default: ASD_RULE, or threshold)")
    parser.add_argument("--mode", choices=("graph", "pynative"), default="graph", help="default %(default)s")
    parser.add_argument("--out", type=Path, help="folder for what it leaves (default: ASD_RUN_DIR/demo)")
    parser.add_argument("--seed", type=int, default=1, help="for weights and data (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")


def run(args: argparse.Namespace) -> int:
    """Runs the story; 0 if everything in it came true."""
    config = replace(Config.from_env(os.environ), enable=1, on_anomaly="stop")
    config = replace(config, rule=args.rule) if args.rule else config
    out = args.out if args.out is not None else Path(config.run_dir) / "demo"
    fault = Fault.parse(args.fault)
    if args.steps < 20:
        raise ConfigError("--steps", args.steps, "valid is a number from 20 on")
    if not 1 < fault.step <= args.steps:
        raise ConfigError("--fault", args.fault, f"valid is a fault whose step is from 2 to {args.steps}, see --steps")
    _clear(out)
    quiet(out)
    result = _Story(config, fault, args, out).tell()
    if args.json:
        print(json.dumps(result, indent=1))
    return 0 if all(result["checks"].values()) else 1


def _clear(out: Path) -> None:
    """Makes room, but never deletes what an earlier demo did not leave."""
    marker = out / ".asd-demo"
    if out.exists() and any(out.iterdir()) and not marker.exists():
        raise ConfigError("--out", str(out), "valid is a new or empty folder, or one that an earlier demo left")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    marker.touch()


def quiet(out: Path, *, is_temporary: bool = False) -> None:
    """Keeps MindSpore and mindformers from burying the story in chatter; call it before they are imported.

    mindformers also writes a log folder into the working directory; `out` is where it goes instead. And an interrupt
    ends the process at once: a KeyboardInterrupt inside MindSpore's C++ aborts it, and while a graph runs MindSpore has
    a handler of its own, which sends SIGTERM. A temporary `out` is removed then.
    """
    os.environ.setdefault("GLOG_v", "3")
    os.environ.setdefault("LOCAL_DEFAULT_PATH", str(out / "mindformers"))

    def leave(*_: object) -> NoReturn:
        os.write(sys.stderr.fileno(), b"\nasd: interrupted.\n" if sys.stderr.isatty() else b"asd: interrupted.\n")
        if is_temporary:
            shutil.rmtree(out, ignore_errors=True)
        os._exit(130)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)


class _Story:
    def __init__(self, config: Config, fault: Fault, args: argparse.Namespace, out: Path) -> None:
        from asd.exporters.event_log import open_event_log
        from asd.exporters.evidence.sink import open_evidence
        from asd.exporters.log import LogSink
        from asd.exporters.status_file import open_status_file
        from asd.operators import workload
        from asd.operators.origin import origin_of_process

        workload.use_mode(args.mode)
        self.train = workload.train
        self.size = workload.SMALL.with_(seed=args.seed)
        config = replace(config, run=config.name_of_run(), run_dir=str(out))
        self.config, self.fault, self.steps, self.out = config, fault, args.steps, out
        self.is_quiet = args.json
        self.mode = args.mode
        self.events: list[Event] = []
        files = (open_event_log, open_evidence, open_status_file)
        self.sinks: list[Any] = [self.events.append, *(each(config, origin_of_process(config)) for each in files)]
        if not self.is_quiet:
            self.sinks.append(LogSink())
            logging.getLogger("asd").setLevel(logging.WARNING)  # the story tells the rest

    def tell(self) -> dict[str, Any]:
        self._say(f"mindformers LlamaForCausalLM, {self.mode} mode, {self.steps} steps, rule {self.config.rule}\n")
        self._say("1. The same training twice: without detection, then with it.")
        bare = self._train("without detection")
        clean = self._train("with detection", config=self.config, sinks=self.sinks)
        same = bare.losses == clean.losses and bare.digest == clean.digest
        alarms = len(self.events)
        judged = sum(map(len, clean.history.values()))
        self._say(f"   {len(clean.history)} checkpoints, {judged} values judged, {alarms} alarms.")
        self._say(f"   Losses and weights are {'equal bit for bit' if same else 'NOT EQUAL'}.\n")
        self._say(f"2. Once more, with a fault: {self.fault}")
        broken = self._train(
            "with the fault", config=self.config, sinks=self.sinks, fault=self.fault, folder=self.out / "checkpoints",
            digest_after=self.fault.step - 1,
        )  # fmt: skip
        return self._ending(bare, clean, broken, same=same, alarms=alarms)

    def _ending(self, bare: Any, clean: Any, broken: Any, *, same: bool, alarms: int) -> dict[str, Any]:
        change, event = (broken.changes or [None])[0], broken.anomaly
        if change is not None:
            self._say(
                f"   what the fault did: {broken.where}{list(change.at)} {change.before:.6g} -> {change.after:.6g}"
            )
        refused = event is not None and event.refused and broken.digest == broken.digest_then
        checks = {
            "detection changes no number": same,
            "no alarm in the clean run": alarms == 0,
            "the fault was found at its step": event is not None and event.step == self.fault.step,
            "at its checkpoint": event is not None and event.checkpoint == broken.where,
            "the update was refused, weights and optimizer are untouched": refused,
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
            f"\nEvents:   {self.out / 'events-rank0.jsonl'}\nPicture:  {picture}\n"
            f"Evidence: {event.evidence if event is not None else 'none'}\nReport:   {report}\n"
            "Next: `export NPU_ASD_ENABLE=1` and `asd run python train.py` for a training of your own;\n"
            "      `asd drill --help` for other faults; `asd env` for the settings."
        )
        return {
            "checks": checks, "event": json.loads(event.to_json()) if event is not None else None,
            "final_loss": losses[list(losses)[-1]][-1], "clean_loss": clean.losses[-1], "picture": str(picture),
            "report": str(report),
        }  # fmt: skip

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

    def _draw(self, history: Any, losses: dict[str, list[float]]) -> Path | str:
        try:
            from asd.exporters.picture import draw_history
        except ModuleNotFoundError:
            return "none; pip install 'mindspore-asd[plot]' brings matplotlib"
        picture = self.out / "feature_values.png"
        title = f"Feature values of a Llama, rule {self.config.rule}; {self.fault}"
        draw_history(picture, history, self.events, losses=losses, title=title)
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
