"""Drill: tests the device, runs the trainings with and without faults, and fills in each part of the result."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from math import nan
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

from asd.config import Config
from asd.diagnosis.selftest import WRONG
from asd.drill import conclusions
from asd.drill.conclusions import HELD, NOT_HELD, NOT_TRIED, OUTCOMES, SHOWN, DrillPart
from asd.drill.trainings import HUNG, DrillJob, Trained, Trainings, held, running, wait
from asd.drill.writes import files_of
from asd.errors import ConfigError, StateError
from asd.event import Event
from asd.supervisor.processes import free_port
from asd.verdict import Level

_LASTING = 1_000_000
_MOST_FILES, _MOST_LINES = 100_000, 16
_MORE = "Pass more --minutes: there was no time left for it."
_FAULTS = (
    "gradient:flip=30",
    f"gradient:set=1e9:duration={_LASTING}",
    "weight:scale=1e6",
    "sum:set=1e3",
    "moment:flip=30",
    "update:scale=1e4",
    f"gradient:block=8:duration={_LASTING}:chance=0.2",
    f"output:factor=4:duration={_LASTING}",
    f"output:flip=30:elements=4:duration={_LASTING}:chance=0.2",
    "weight:flip=30",
    "update:flip=29",
    "gradient:shift=1",
    f"sum:zero=2:duration={_LASTING}",
    "output:zero=2",
    "moment:scale=1e8",
    f"gradient:stick=100:duration={_LASTING}",
    "output:shift=1",
    "update:block=8",
)
"""Faults in the order they are tried: target, change, and how long; the place and the elements are by their number.

Those of sums need several ranks.
"""


class Drill:
    """Drill of one training command.

    Args:
        job: What to do.
        events_of: Reads all events of a run folder.
        tell: Called with each step of the work.
    """

    def __init__(self, job: DrillJob, events_of: Callable[[Path], list[Event]], tell: Callable[[str], None]) -> None:
        self.job, self._tell = job, tell
        self.parts = {name: DrillPart() for name in ("fits", "same", "cost", "finds", "quiet", "reaches")}
        self.parts["reaches"].said.append("no permanent fault was tried to its end")
        self._work, self._trainings = job.work, Trainings(job, events_of)
        self._train, self._began = self._trainings.train, time.monotonic()
        self._held, self._before = held(), files_of(Path.cwd(), _MOST_FILES)
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
            self._self_test(first.records[0]["mode"], first.records[0]["device"])
            self._fits()
            for number in range(1, self.job.pairs):
                is_spare = self._trainings.has_time(2 + self.job.faults)  # else faults are worth more than a pair
                if not (is_spare or (number == 1 and self._trainings.has_time())):
                    break
                self._tell(f"pair {number + 1} of {self.job.pairs}")
                self.bare.append(self._train("0"))
                if is_spare:
                    self.watched.append(self._train("1"))
                    self._fails(self.watched[-1])
            self.parts["same"] = conclusions.compare_numbers(self.bare, self.watched, in_place=not self.job.redirects)
            self.parts["cost"] = conclusions.compare_cost(self.bare, self.watched)
            self._finds()
            self.parts["quiet"] = conclusions.count_alarms(self.watched)
            self._compare_files()
            for part in self.parts.values():
                if part.state == NOT_TRIED and not part.advice and not self._trainings.has_time():
                    part.advice = _MORE
        finally:
            self._trainings.close()

    def result(self, versions: Mapping[str, Any]) -> dict[str, Any]:
        """Returns all that can be sent: it has no data of the training."""
        parts = {name: asdict(part) for name, part in self.parts.items()}
        for part in parts.values():
            del part["private"]
        versions = {**versions, "minutes": round((time.monotonic() - self._began) / 60, 1)}
        return dict(json.loads(json.dumps({"versions": versions, "parts": parts}), parse_constant=str))  # no Infinity

    def _first(self) -> Trained:
        self._tell("the training by itself, without detection")
        first = self._train("0")
        changed = self._changed()
        said = [f"{path} has changed meanwhile" for path in changed[:1]]
        last = "".join(f"\n  {line}" for line in [*said, *first.tail])
        if first.code is None:
            raise StateError(f"the training made no {self.job.steps} steps in time: pass --minutes or --steps:{last}")
        if first.code != 0:
            made = min((record["steps"] for record in first.records), default=0)
            fails = f"fails by itself after step {made}"
            if made and all(record["ended"] for record in first.records):
                fails = f"ended with step {made}, and what follows it in COMMAND fails (pass the training alone)"
            elif made == 0 and self.job.redirects:
                fails += ", or as its files are redirected (see --allow-writes)"
            raise StateError(f"the training {fails}, with code {first.code}:{last}")
        if not first.records:
            must = "COMMAND must wait for its end, as msrun --join=True does; a script must pass its environment on"
            raise StateError(f"the training made no step that is seen ({must}):{last}")
        self._trainings.steps = min(self._trainings.steps, *(record["steps"] for record in first.records))
        if not first.ended:  # its weights were recorded at its exit
            again = self._train("0")
            first = again if again.ended else first
        if changed:
            raise ConfigError("COMMAND", changed[0], "no file here may change meanwhile: pass --allow-writes if it may")
        self.bare.append(first)
        return first

    def _changed(self) -> list[str]:
        """Returns the files of the working folder that have changed; none where writing was allowed."""
        if not self.job.redirects or self._before is None:
            return []
        after = files_of(Path.cwd(), _MOST_FILES) or {}
        self._held |= held()
        return sorted({name for name, _ in set(after.items()) ^ set(self._before.items())} - self._held)

    def _self_test(self, mode: str, device: str) -> None:
        self._tell("asd selftest")
        environ = {**self.job.environ, "TMPDIR": str(self._work)}
        words = [sys.executable, "-m", "asd", "selftest", "--json", "--mode", mode, "--device", device]
        with (self._work / "selftest").open("w+b") as output:
            with running(words, environ, output) as process:
                code = wait(process, self._trainings.seconds_left())
            output.seek(0)
            told = output.read().decode(errors="replace")
        part = self.parts["fits"]
        tested: dict[str, Any] = {}
        with suppress(ValueError):
            tested = json.loads(told[told.index("{") : told.rindex("}") + 1])
        counts, names = tested.get("counts", {}), ("area", "name", "dtype", "detail")
        wrong = [each for each in tested.get("findings", ()) if each["state"] == WRONG]
        part.private += [" ".join(each[name] for name in names if each[name]) for each in wrong]
        part.state = HELD if code == 0 else NOT_TRIED if code is None else NOT_HELD
        part.numbers["selftest"] = counts
        part.said.append(f"asd selftest on {device}: {counts.get('ok', 0)} right, {counts.get('wrong', 0)} wrong")
        if code is None:
            part.advice = _MORE
        elif code != 0 and not counts:
            part.private = told.splitlines()[-_MOST_LINES:]
            part.advice = "Run the drill where the device is: in Slurm by sbatch, as salloc may run it on a login node."
        elif code != 0:
            part.advice = "Do not use this device until `asd selftest` passes; what is wrong is below."

    def _fits(self) -> None:
        self._tell("the training under detection")
        part, trained = self.parts["fits"], self._train("1")
        self.watched.append(trained)
        resumes = self._resumes(trained)
        if trained.code is None or (resumes and not trained.records):
            part.state = NOT_TRIED if part.state == HELD else part.state
            part.advice = part.advice or ("It made no step: start it from no checkpoint." if resumes else _MORE)
            return
        if self._fails(trained):
            return
        found = trained.statuses[0].get("protections", {}) if trained.statuses else {}
        places, missing = found.get("places", {}), found.get("missing", {})
        part.numbers |= {"checked": places, "on": sorted(found.get("on", {})), "missing": sorted(missing)}
        part.said += [f"checked: {count} {words}" for words, count in places.items()] or ["nothing is checked"]
        part.said += [f"{setting} is not active, or not everywhere: reasons below" for setting in missing]
        part.private += [f"{setting}: {'; '.join(why)}" for setting, why in missing.items()]
        part.said.append(f"refused steps {'are' if found.get('on', {}).get('replay') else 'cannot be'} re-run")
        if not places:
            part.state = NOT_HELD
            part.advice = "Call StepMonitor.attach before the loop and StepMonitor.step after each step."
        record = trained.records[0] if trained.records else self.bare[0].records[0]
        part.numbers |= {name: record[name] for name in ("mode", "device", "place")}
        part.numbers |= {"ranks": len(self.bare[0].records), "steps": self._trainings.steps}

    def _resumes(self, trained: Trained) -> bool:
        """Returns whether a training may have continued from files of the one before."""
        return trained.code == 0 and not self.job.redirects

    def _fails(self, trained: Trained) -> bool:
        """Returns whether a training fails under detection, as "fits" then says."""
        is_own = self.bare[-1].code != 0 or self._resumes(trained)
        if trained.code is None or trained.ended or is_own or trained.of(Level.ERROR):
            return False
        part, how = self.parts["fits"], "hangs" if trained.code == HUNG else f"ends with code {trained.code}"
        part.state, part.private = NOT_HELD, [*part.private, *trained.tail]
        part.said.append(f"the training {how} under detection, and ends with 0 without")
        part.advice = part.advice or "Send the JSON and the last lines to the authors; train with detection off."
        return True

    def _finds(self) -> None:
        part, healthy = self.parts["finds"], [each for each in self.watched if each.ended]
        if self.job.faults == 0 or not healthy:
            part.said.append("--faults 0" if self.job.faults == 0 else "no training under detection ended")
            return
        counts, ranks = Counter[str](), len(healthy[0].records)
        part.rows = [["outcome", "target", "change", "how long", *conclusions.HEADS]]
        faults = [each for each in _FAULTS if ranks > 1 or not each.startswith("sum")]
        same, unknown = self.parts["same"], 0.0 if healthy[0].records[0]["seeded"] else nan
        noise = float(same.numbers.get("noise", nan if same.state == SHOWN else unknown))
        for number in range(self.job.faults):
            if not self._trainings.has_time():
                break
            self._tell(f"fault {number + 1} of {self.job.faults}")
            target, _, rest = faults[number % len(faults)].partition(":")
            trained = self._strike(f"{target}:.:{rest}:seed={number}", ranks if target != "sum" else 1)
            how_long = "intermittent" if "chance" in rest else "permanent" if "duration" in rest else "transient"
            *cells, outcome = conclusions.judge(trained, healthy, noise)
            part.rows.append([outcome, target, rest.partition(":")[0], how_long, *cells])
            counts[outcome] += 1
            part.private = trained.tail if outcome == "failed" else part.private
        tried = sum(counts.values())
        part.numbers |= {"tried": tried, "wanted": self.job.faults, **counts}
        part.said.append(f"{tried} of {self.job.faults} faults were tried within --minutes")
        part.said += [f"{counts[outcome]} {outcome}: {words}" for outcome, words in OUTCOMES.items() if counts[outcome]]
        if tried - counts["not struck"] - counts["out of time"]:  # else nothing was tested
            part.state = NOT_HELD if counts["missed"] or counts["failed"] else SHOWN if counts["unseen"] else HELD

    def _strike(self, fault: str, ranks: int) -> Trained:
        """Trains with a fault, of the last rank; with the first permanent one an agent and a handler run beside it."""
        reaches, rank = self.parts["reaches"], f":rank={ranks - 1}" if ranks > 1 else ""
        text = f"{fault}:step={max(2, self._trainings.steps * 5 // 8)}{rank}"
        if reaches.state != NOT_TRIED or "duration" not in fault or "chance" in fault:
            return self._train("1", text)
        reaches.said.clear()
        way = Way(Path(self._trainings.temporary.name), self.job.environ)
        with way.open() as follow:
            trained = self._train("1", text, follow=follow)
            way.conclude(reaches, trained)
        return trained

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
        with ExitStack() as started:

            def follow(run_dir: Path) -> None:
                asd, place = [sys.executable, "-m", "asd"], f"127.0.0.1:{self._port}"
                run_dir.mkdir(exist_ok=True)
                targets = self._folder / "agents.json"
                labels = {"node": Config.of_process().name_of_node()}
                targets.write_text(json.dumps([{"targets": [place], "labels": labels}]), encoding="utf-8")
                own = ["--state", str(self._folder / "agent.sqlite")]  # it outlives the run folder
                agent = [*asd, "exporter", "--run-dir", str(run_dir), "--port", str(self._port), *own]
                state = ["--state", str(self._folder / "handler.sqlite"), "--settle", "0"]
                handler = [*asd, "handler", "--agents", str(targets), "--dry-run", "--json", *state]
                environ = {**self._environ, "ASD_RUN_DIR": str(self._folder / "handler"), "NPU_ASD_ENABLE": "0"}
                for words, output in ((agent, self._folder / "agent"), (handler, self._decisions)):
                    started.enter_context(running(words, environ, started.enter_context(output.open("wb"))))

            yield follow

    def conclude(self, part: DrillPart, trained: Trained) -> None:
        """Waits for a decision, and notes it."""
        node = Config.of_process().name_of_node()
        anomalies = [each for each in trained.of(Level.ERROR) if each.host == node]
        if not anomalies:
            part.said.append("the fault made no first-level event on this node, so there was none to follow")
            return
        metrics, reach = "", build_opener(ProxyHandler({})).open
        with suppress(OSError), reach(f"http://127.0.0.1:{self._port}/metrics", timeout=10) as answer:
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
            return
        part.said.append(
            f"the handler: {devices[0]['strikes']} of the {devices[0]['limit']} strikes that isolate a device, within "
            f"{waited:.1f} s of the event, rest of the training included; decisions: {', '.join(actions) or 'none yet'}"
        )

    def _devices(self) -> list[dict[str, Any]]:
        """Returns the devices that the handler knows."""
        words = [sys.executable, "-m", "asd", "devices", "--json", "--state", str(self._folder / "handler.sqlite")]
        done = subprocess.run(words, env=dict(self._environ), capture_output=True, text=True, check=False)
        with suppress(ValueError):
            return list(json.loads(done.stdout))
        return []
