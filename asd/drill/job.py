"""Parent of a drill: runs the trainings one after the other, and draws a conclusion for each part."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from math import inf, isfinite
from pathlib import Path
from typing import Any, NamedTuple

from asd.config import Config
from asd.drill import REFUSED, VARIABLE, TrainingPlan
from asd.drill.writes import files_of
from asd.errors import ConfigError, StateError
from asd.event import Event
from asd.supervisor import keeper
from asd.supervisor.processes import find_launcher, free_port, resolve
from asd.verdict import Level

HELD, NOT_HELD, TOLD, NOT_TRIED = "held", "did not hold", "told", "not tried"
AIM = 1.03
"""Most time of a step with detection to that without, of steps that take at least `_SHORT` seconds on a device."""
_SHORT = 0.1
_LASTING = 1_000_000
_MOST_FILES, _MOST_LINES, _TAIL = 100_000, 16, 65536
_FAULTS = (
    "gradient:flip=30",
    f"gradient:set=1e9:duration={_LASTING}",
    "weight:scale=1e6",
    "moment:flip=30",
    "update:scale=1e4",
    f"gradient:block=8:duration={_LASTING}:chance=0.2",
    f"output:factor=4:duration={_LASTING}",
    f"output:flip=30:elements=4:duration={_LASTING}:chance=0.2",
    "weight:flip=30",
    "update:flip=29",
    "gradient:shift=1",
    "output:zero=2",
    "moment:scale=1e8",
    f"gradient:stick=100:duration={_LASTING}",
    "output:shift=1",
    "update:block=8",
)
"""Faults in the order they are tried: target, change, and how long; the place and the elements are by their number."""


class DrillJob(NamedTuple):
    """A drill to make.

    Attributes:
        command: Training command with the path of its program.
        environ: Environment of the trainings.
        out: Folder for results and, while it lasts, for the trainings; it exists.
        minutes: Longest time of all.
        steps: Steps of each training.
        faults: Number of faults to try.
        pairs: Pairs of trainings without and with detection.
        redirects: Whether files that the training writes are redirected.
    """

    command: Sequence[str]
    environ: Mapping[str, str]
    out: Path
    minutes: float
    steps: int
    faults: int
    pairs: int
    redirects: bool


@dataclass
class Trained:
    """Result of one training.

    Attributes:
        code: Exit code; None if it had to be killed, as its time was over.
        seconds: Duration.
        records: Records by `asd.operators.drill.child`, one for each rank, in their order.
        events: Events, by time.
        statuses: Status of each rank, as JSON.
        tail: Last lines of its output.
    """

    code: int | None
    seconds: float
    records: list[dict[str, Any]]
    events: list[Event]
    statuses: list[dict[str, Any]]
    tail: list[str]

    @property
    def ended(self) -> bool:
        """Returns whether the drill ended it, after all its steps."""
        return self.code == 0 and bool(self.records) and all(record["ended"] for record in self.records)

    def of(self, level: Level) -> list[Event]:
        """Returns the anomalies of this level."""
        return [event for event in self.events if event.kind == "anomaly" and event.level is level]


@dataclass
class DrillPart:
    """One part of the result.

    Attributes:
        state: One of `HELD`, `NOT_HELD`, `TOLD` and `NOT_TRIED`.
        said: Findings in sentences, without data of the training.
        advice: What to do; empty for nothing.
        numbers: The same for programs.
        rows: Rows of a table, the first one being its head.
        private: Lines for the page alone, as they may hold data of the training.
    """

    state: str = NOT_TRIED
    said: list[str] = field(default_factory=list)
    advice: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)
    rows: list[list[Any]] = field(default_factory=list)
    private: list[str] = field(default_factory=list)


class Drill:
    """Drill of one training command.

    Args:
        job: What to do.
        events_of: Reads all events of a run folder.
        tell: Called with each step of the work.
    """

    def __init__(self, job: DrillJob, events_of: Callable[[Path], list[Event]], tell: Callable[[str], None]) -> None:
        self.job, self._events_of, self._tell = job, events_of, tell
        self.parts = {name: DrillPart() for name in ("fits", "same", "cost", "finds", "quiet", "reaches")}
        self._work = job.out / f".work-{os.getpid()}"
        self._end = time.monotonic() + job.minutes * 60
        self._began, self._number, self._steps, self._longest = time.monotonic(), 0, job.steps, 0.0
        self._before = files_of(Path.cwd(), job.out, _MOST_FILES)
        self.bare: list[Trained] = []
        self.watched: list[Trained] = []

    def run(self) -> None:
        """Makes the drill; leaves nothing but `parts` behind, also when it is interrupted.

        Raises:
            ConfigError: The training writes what can't be redirected.
            StateError: The training fails by itself, or makes no steps that can be seen.
        """
        self._work.mkdir()
        try:
            first = self._first()
            self._self_test(first.records[0]["mode"])
            self._fits()
            for number in range(1, self.job.pairs):
                if not self._has_time(2):
                    break
                self._tell(f"pair {number + 1} of {self.job.pairs}")
                self.bare.append(self._train("0"))
                self.watched.append(self._train("1"))
            self._same()
            self._cost()
            self._finds()
            self._quiet()
            self._compare_files()
        finally:
            shutil.rmtree(self._work, ignore_errors=True)

    def result(self, versions: Mapping[str, Any]) -> dict[str, Any]:
        """Returns all that can be sent: it has no data of the training."""
        parts = {name: asdict(part) for name, part in self.parts.items()}
        for part in parts.values():
            del part["private"]
        return {"versions": {**versions, "minutes": round((time.monotonic() - self._began) / 60, 1)}, "parts": parts}

    # Trainings.

    def _has_time(self, trainings: int = 1) -> bool:
        return time.monotonic() + trainings * self._longest < self._end

    def _train(self, detects: str, fault: str = "", *, follow: Callable[[Path], None] | None = None) -> Trained:
        self._number += 1
        folder = self._work / f"{self._number}"
        TrainingPlan(str(folder), self._steps, self.job.redirects, fault).save()
        run_dir, temporary, log = folder / "run", folder / "tmp", folder / "log"
        temporary.mkdir()
        settings = {
            VARIABLE: str(folder),
            "ASD_RUN_DIR": str(run_dir),
            "ASD_RUN": f"drill-{self._number}",
            "NPU_ASD_ENABLE": detects,
            "TMPDIR": str(temporary),
            "LOCAL_DEFAULT_PATH": str(folder / "mindformers"),
            "PYTHONDONTWRITEBYTECODE": "1",
            # The launcher starts a Python by its name.
            "PATH": os.pathsep.join([str(Path(self.job.command[0]).parent), self.job.environ.get("PATH", os.defpath)]),
        }
        if fault:
            settings |= {"ASD_ON_ANOMALY": "skip"}
        began = time.monotonic()
        environ = {**self.job.environ, **settings}
        with log.open("wb") as output, _running(self.job.command, environ, output) as process:
            if follow is not None:
                follow(run_dir)
            code = _wait(process, max(60.0, self._end - began))
        seconds = time.monotonic() - began
        self._longest = max(self._longest, seconds)
        workers = sorted(folder.glob("writes/**/worker_*.log"), key=lambda path: path.stat().st_mtime) if code else []
        tail = (workers or [log])[0].read_bytes()[-_TAIL:].decode(errors="replace").splitlines()[-_MOST_LINES:]
        records = [json.loads(path.read_text()) for path in folder.glob("record-rank*.json")]
        statuses = [json.loads(path.read_text()) for path in run_dir.glob("status-rank*.json")]
        events = sorted(self._events_of(run_dir), key=lambda event: event.time)
        if (refused := folder / REFUSED).exists():
            path = refused.read_text(encoding="utf-8").splitlines()[0]
            raise ConfigError(
                "COMMAND", path, "the training must write only files that can be redirected: pass --allow-writes"
            )
        shutil.rmtree(folder)
        return Trained(code, seconds, sorted(records, key=lambda each: each["rank"]), events, statuses, tail)

    def _first(self) -> Trained:
        self._tell("the training by itself, without detection")
        first = self._train("0")
        last = "".join(f"\n  {line}" for line in first.tail)
        if first.code is None:
            raise StateError(f"the training made no {self._steps} steps in the time: pass --minutes or --steps.{last}")
        if not first.records:
            what = "made no step that can be seen" if first.code == 0 else f"fails by itself, with code {first.code}"
            raise StateError(f"the training {what}; its last lines:{last}")
        if not first.ended and first.code != 0:
            made = min(record["steps"] for record in first.records)
            raise StateError(f"the training fails by itself after step {made}, with code {first.code}:{last}")
        self._steps = min(self._steps, *(record["steps"] for record in first.records))
        if changed := self._changed():
            raise ConfigError(
                "COMMAND", changed[0], "it has changed meanwhile, and no file here may: pass --allow-writes if it may"
            )
        self.bare.append(first)
        return first

    def _changed(self) -> list[str]:
        """Returns the files of the working folder that have changed; none where writing was allowed."""
        if not self.job.redirects or self._before is None:
            return []
        after = files_of(Path.cwd(), self.job.out, _MOST_FILES) or {}
        return sorted(name for name, _ in set(after.items()) ^ set(self._before.items()))

    # Parts.

    def _self_test(self, mode: str) -> None:
        self._tell("asd selftest")
        environ = {**self.job.environ, "TMPDIR": str(self._work)}
        words = [sys.executable, "-m", "asd", "selftest", "--json", "--mode", mode]
        with (self._work / "selftest").open("w+b") as output:
            with _running(words, environ, output) as process:
                code = _wait(process, max(60.0, self._end - time.monotonic()))
            output.seek(0)
            told = output.read().decode(errors="replace")
        part = self.parts["fits"]
        counts: dict[str, int] = {}
        with suppress(ValueError, KeyError):
            counts = json.loads(told[told.index("{") : told.rindex("}") + 1])["counts"]
        part.state = HELD if code == 0 else NOT_HELD
        part.numbers["selftest"] = counts
        part.said.append(f"asd selftest: {counts.get('ok', 0)} right, {counts.get('wrong', 0)} wrong")
        if code != 0:
            part.advice = "Run `asd selftest` and read what is wrong; do not use this device until it passes."

    def _fits(self) -> None:
        self._tell("the training under detection")
        part, trained = self.parts["fits"], self._train("1")
        self.watched.append(trained)
        if not trained.ended and not trained.of(Level.ERROR):
            part.state, part.private = NOT_HELD, trained.tail
            part.said.append(f"the training ends with code {trained.code} under detection, and with 0 without")
            part.advice = "Send the JSON and the last lines below to the authors; train without detection meanwhile."
            return
        found = trained.statuses[0].get("protections", {}) if trained.statuses else {}
        places, missing = found.get("places", {}), found.get("missing", {})
        part.numbers |= {"checked": places, "on": sorted(found.get("on", {})), "missing": sorted(missing)}
        part.said += [f"checked: {count} {words}" for words, count in places.items()] or ["nothing is checked"]
        part.said += [f"{setting} is not active, or not everywhere" for setting in missing]
        part.private += [f"{setting}: {'; '.join(why)}" for setting, why in missing.items()]
        again = found.get("on", {}).get("replay")
        part.said.append("refused steps are re-run" if again else "refused steps cannot be re-run")
        if not places:
            part.state = NOT_HELD
            part.advice = "Call StepMonitor.attach before the loop and StepMonitor.step after each step."
        record = trained.records[0] if trained.records else self.bare[0].records[0]
        part.numbers |= {name: record[name] for name in ("mode", "device", "place")} | {
            "ranks": len(self.bare[0].records),
            "steps": self._steps,
            "machine": trained.statuses[0].get("cann", "") if trained.statuses else "",
        }

    def _same(self) -> None:
        part, bare = self.parts["same"], [each for each in self.bare if each.ended or each.code == 0]
        watched = [each for each in self.watched if each.ended or (each.code == 0 and each.records)]
        if len(bare) < 2 or not watched:
            part.said.append("too few trainings ended within --minutes, or under detection")
            return
        apart = [_distance(bare[i], each) for i in range(len(bare)) for each in bare[i + 1 :]]
        with_it = [min(_distance(each, other) for other in bare) for each in watched]
        part.numbers |= {"apart_without": max(apart), "apart_with": max(with_it), "trainings": len(bare) + len(watched)}
        seeded = bare[0].records[0]["seeded"]
        losses = "losses and weights" if _has_losses(bare[0]) else "weights"
        if max(apart) == 0:
            same = max(with_it) == 0
            part.said.append(
                f"{losses} of {len(watched)} trainings with detection are {'equal' if same else 'NOT equal'} bit for "
                f"bit to those of {len(bare)} without"
            )
        elif not _starts_alike(bare):
            part.state = TOLD
            why = "" if seeded else " (mindspore.set_seed is not called)"
            part.said.append(f"trainings without detection begin differently{why}, so nothing can be compared")
            part.advice = "Set a seed for weights and data, and run the drill again."
            return
        else:
            same = max(with_it) <= 2 * max(apart)
            part.said.append(
                f"the device does not repeat its bits: trainings without detection are up to {max(apart):.2g} apart, "
                f"those with detection up to {max(with_it):.2g} from the nearest of them (relative; twice is allowed)"
            )
        part.state = HELD if same else NOT_HELD
        if not same:
            part.advice = "Detection has changed a number: send the JSON to the authors; use ASD_PROTECTION=document."

    def _cost(self) -> None:
        part = self.parts["cost"]
        pairs = [pair for pair in zip(self.bare, self.watched, strict=False) if all(each.records for each in pair)]
        pairs = [pair for pair in pairs if all(_median(each, "seconds") for each in pair)]
        if not pairs:
            part.said.append("too few steps were made")
            return
        rows = {
            words: [(_median(a, name), _median(b, name)) for a, b in pairs]
            for name, words in (("seconds", "time of a step, s"), ("busy", "processor time of a step, s"))
        }
        for name, words in (("first", "time to the first step, s"), ("memory", "memory, bytes")):
            rows[words] = [(a.records[0][name], b.records[0][name]) for a, b in pairs]
        heads = ("without", "with", "ratio", "least", "most")
        part.rows = [["", *heads]]
        for words, values in rows.items():
            ratios = [b / a if a else inf for a, b in values]
            middle = [statistics.median(each) for each in zip(*values, strict=True)]
            part.rows.append([words, *middle, statistics.median(ratios), min(ratios), max(ratios)])
            part.numbers[words] = dict(zip(heads, part.rows[-1][1:], strict=True))
        _, usual, _, ratio, least, most = part.rows[1]
        part.said.append(f"a step takes {ratio:.3g} times as long, {least:.3g} to {most:.3g} in {len(pairs)} pairs")
        part.state, part.advice = HELD, ""
        if self.bare[0].records[0]["device"] == "CPU" or usual < _SHORT:
            part.state = TOLD
            part.said.append(f"this says nothing about the aim of {AIM}, for steps of at least {_SHORT} s on a device")
        elif least > AIM:
            part.state, part.advice = NOT_HELD, "Read costs.md; ASD_PROTECTION=document costs least."

    def _finds(self) -> None:
        part, clean = self.parts["finds"], self.watched[0]
        if self.job.faults == 0 or not clean.ended:
            part.said.append("--faults 0" if self.job.faults == 0 else "training under detection did not end")
            return
        heads = ["target", "change", "how long", "struck", "told", "own step", "refused", "named", "verdict", "end"]
        part.rows, counts = [heads], Counter[str]()
        noise = 2 * float(self.parts["same"].numbers.get("apart_without", 0.0))
        for number in range(self.job.faults):
            if not self._has_time():
                break
            self._tell(f"fault {number + 1} of {self.job.faults}")
            trained = self._strike(number, len(clean.records))
            row, outcome = _judge(trained, clean, noise)
            target, _, rest = _FAULTS[number % len(_FAULTS)].partition(":")
            part.rows.append([target, *_how(rest), *row])
            counts[outcome] += 1
            part.private = trained.tail if outcome == "failed" else part.private
        tried = sum(counts.values())
        part.numbers |= {"tried": tried, "wanted": self.job.faults, **counts}
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        part.said.append(f"{tried} of {self.job.faults} faults were tried: {outcomes}")
        if counts:
            part.state = NOT_HELD if counts["missed"] or counts["failed"] else HELD
        if counts["missed"]:
            part.advice = "Faults of the missed kinds change this training unseen: read limits.md about their kind."
        if counts["failed"]:
            part.advice = "A training ended with an error under a fault: its last lines are below; send the JSON."

    def _strike(self, number: int, ranks: int) -> Trained:
        """Trains with a fault; with the first lasting one of each step an agent and a handler run beside it."""
        fault, reaches = _FAULTS[number % len(_FAULTS)], self.parts["reaches"]
        target, _, rest = fault.partition(":")
        rank = f":rank={number % ranks}" if ranks > 1 else ""
        text = f"{target}:.:{rest}:step={max(2, self._steps * 5 // 8)}:seed={number}{rank}"
        if reaches.state != NOT_TRIED or "duration" not in rest or "chance" in rest:
            return self._train("1", text)
        reaches.said.clear()
        way = Way(self._work, self.job.environ)
        with way.open() as follow:
            trained = self._train("1", text, follow=follow)
            way.conclude(reaches, trained)
        return trained

    def _quiet(self) -> None:
        part = self.parts["quiet"]
        first, second = (sum(len(each.of(level)) for each in self.watched) for level in (Level.ERROR, Level.WARNING))
        steps = sum(record["steps"] for each in self.watched for record in each.records)
        checks = sum(int(status.get("checks", 0)) for each in self.watched for status in each.statuses)
        problems = sum(event.kind == "problem" for each in self.watched for event in each.events)
        part.numbers |= {"first": first, "second": second, "problems": problems, "steps": steps, "checks": checks}
        part.said.append(
            f"{first} first-level and {second} second-level events, {problems} problems of the detector, in {checks:,} "
            f"checks of {steps:,} healthy steps"
        )
        part.state = NOT_HELD if first or problems or not checks else HELD
        if first:
            part.advice = (
                "A first-level event without an injected fault: run `asd selftest --seconds 600` on the device; if it "
                "passes, record values with ASD_OPTIONS=record:1 and run `asd tune`."
            )

    def _compare_files(self) -> None:
        if self._before is None or not self.job.redirects:
            self.parts["fits"].said.append("whether files of the training were changed was not compared")
        elif changed := self._changed():
            part = self.parts["fits"]
            part.state, part.private = NOT_HELD, [*part.private, *changed[:_MOST_LINES]]
            part.said.append(f"{len(changed)} files in the working folder have changed meanwhile")


class Way:
    """Way of an event: an agent and a handler that only says what it would do, beside one training.

    Args:
        folder: Folder for their files.
        environ: Their environment.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder, self._environ, self._port = folder, environ, free_port()
        self._decisions = folder / "decisions"

    @contextmanager
    def open(self) -> Iterator[Callable[[Path], None]]:
        """Yields a function that starts both for a run folder; they end with the block."""
        started: list[Any] = []

        def follow(run_dir: Path) -> None:
            asd, place = [sys.executable, "-m", "asd"], f"127.0.0.1:{self._port}"
            run_dir.mkdir(exist_ok=True)
            targets = self._folder / "agents.json"
            labels = {"node": Config.of_process().name_of_node()}
            targets.write_text(json.dumps([{"targets": [place], "labels": labels}]), encoding="utf-8")
            agent = [*asd, "exporter", "--run-dir", str(run_dir), "--port", str(self._port)]
            state = ["--state", str(self._folder / "handler.sqlite"), "--settle", "0"]
            handler = [*asd, "handler", "--agents", str(targets), "--dry-run", "--json", *state]
            environ = {**self._environ, "ASD_RUN_DIR": str(self._folder / "handler"), "NPU_ASD_ENABLE": "0"}
            for words, name in ((agent, "agent"), (handler, "decisions")):
                output = (self._folder / name).open("wb")
                started.append(_running(words, environ, output))
                started[-1].__enter__()

        try:
            yield follow
        finally:
            for each in started:
                each.__exit__(None, None, None)

    def conclude(self, part: DrillPart, trained: Trained) -> None:
        """Waits for a decision, and notes it."""
        from urllib.request import urlopen

        anomalies = trained.of(Level.ERROR)
        if not anomalies:
            part.said.append("the fault made no first-level event, so there was none to follow")
            return
        metrics = ""
        with suppress(OSError), urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=10) as answer:
            metrics = answer.read().decode()
        counted = any(
            line.startswith("asd_anomalies_total") and not line.endswith(" 0.0") for line in metrics.splitlines()
        )
        part.said.append(f"/metrics of the agent {'counts' if counted else 'does NOT count'} the anomalies")
        end, devices = time.monotonic() + 20, list[dict[str, Any]]()
        while time.monotonic() < end and not devices:
            devices = [each for each in self._devices() if each["strikes"]]
        waited = time.time() - anomalies[0].time
        lines = [line for line in self._decisions.read_text().splitlines() if line.startswith("{")]
        actions = dict(Counter(json.loads(line)["action"] for line in lines))
        part.numbers |= {"metrics": counted, "decisions": actions, "seconds": round(waited, 1)}
        part.state = HELD if counted and devices else NOT_HELD
        if not devices:
            part.said.append("the handler gave no device a strike within 20 s")
            part.advice = "Run `asd exporter` and `asd handler --dry-run` on a run folder, and read what they log."
        for each in devices:
            part.said.append(
                f"{each['strikes']} of {each['limit']} strikes in the handler {waited:.1f} s after the first event, "
                f"the rest of the training included; decisions: {', '.join(actions) or 'none that isolates'}"
            )

    def _devices(self) -> list[dict[str, Any]]:
        """Returns the devices that the handler knows."""
        words = [sys.executable, "-m", "asd", "devices", "--json", "--state", str(self._folder / "handler.sqlite")]
        done = subprocess.run(words, env=dict(self._environ), capture_output=True, text=True, check=False)
        with suppress(ValueError):
            return list(json.loads(done.stdout))
        return []


@contextmanager
def _running(words: Sequence[str], environ: Mapping[str, str], output: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a process in a session of its own; whatever happens, it and all that it started have ended afterwards."""
    kept = [sys.executable, "-I", keeper.__file__, str(os.getpid()), *words]
    process = subprocess.Popen(
        kept, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _distance(one: Trained, other: Trained) -> float:
    """Returns how far two trainings are apart: 0 where all bits are equal, else relative, at least the least number."""
    farthest = 0.0
    for a, b in zip(one.records, other.records, strict=False):
        if a["losses"] == b["losses"] and a["hash"] == b["hash"]:
            continue
        apart = 2.0**-149
        for name in ("losses", "sample"):
            known = [(x, y) for x, y in zip(a[name], b[name], strict=False) if x is not None and y is not None]
            size = sum(x * x for x, _ in known) or 1.0
            apart = max(apart, (sum((x - y) ** 2 for x, y in known) / size) ** 0.5)
        farthest = max(farthest, apart if isfinite(apart) else inf)
    return farthest if len(one.records) == len(other.records) else inf


def _has_losses(trained: Trained) -> bool:
    return any(loss is not None for loss in trained.records[0]["losses"])


def _starts_alike(trainings: Sequence[Trained]) -> bool:
    """Returns whether the first losses are as near as rounding of one network and one batch makes them."""
    firsts = [each.records[0]["losses"][0] for each in trainings]
    if None in firsts:
        return all(each.records[0]["seeded"] for each in trainings)
    return bool(max(firsts) - min(firsts) <= 2.0**-6 * abs(firsts[0]))


def _median(trained: Trained, name: str) -> float:
    values = trained.records[0][name]
    return statistics.median(values[len(values) // 4 :]) if values else 0.0


def _how(rest: str) -> tuple[str, str]:
    change, *options = rest.split(":")
    lasts = any(each.startswith("duration") for each in options)
    now_and_then = any(each.startswith("chance") for each in options)
    return change, "now and then" if now_and_then else "lasting" if lasts else "once"


def _judge(trained: Trained, clean: Trained, noise: float) -> tuple[list[Any], str]:
    """Returns the cells of a fault's row, and its outcome in one word."""
    struck = [each for record in trained.records for each in record["struck"]]
    if not trained.ended:
        return [*["-"] * 6, f"ended with code {trained.code}"], "failed"
    if not struck:
        return ["no", *["-"] * 5, "nothing was changed"], "not struck"
    step, where = struck[0]["step"], struck[0]["where"]
    found = [event for level in (Level.ERROR, Level.WARNING) for event in trained.of(level) if event.step >= step]
    own = [event for event in found if event.step == step]
    level = "no" if not found else "first level" if found[0].level is Level.ERROR else "second level"
    named = any(event.checkpoint.endswith(where) or where.endswith(event.checkpoint) for event in found)
    verdicts = dict.fromkeys(event.verdict for event in trained.events if event.verdict and event.step >= step)
    is_clean, refused = _distance(trained, clean) <= noise, any(event.refused for event in found)
    yes = ["yes" if is_true else "no" for is_true in (own, refused, named)]
    end = "as without the fault" if is_clean else "elsewhere"
    if not found:
        outcome = "without effect" if is_clean else "missed"
    else:
        outcome = "healed" if is_clean else "refused" if any(event.refused for event in own) else "found"
    return [f"step {step}", level, *yes, ", ".join(verdicts) or "-", end], outcome


def command_of(words: Sequence[str], ranks: int | None, out: Path, path: str) -> list[str]:
    """Returns the training command with the path of its program, behind MindSpore's launcher where ranks are given."""
    command = resolve(words, path)
    if ranks is None:
        return command
    counts = [f"--worker_num={ranks}", f"--local_worker_num={ranks}", "--join=True", f"--log_dir={out / 'msrun'}"]
    address = ["--master_addr=127.0.0.1", f"--master_port={free_port()}"]
    script = command[1:] if Path(command[0]).name.startswith("python") else command
    return [find_launcher(command[0], path), *counts, *address, *script]
