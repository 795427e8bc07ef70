"""The second part of the demo: a job of two devices and a spare, under `asd run`, in three acts.

Everything here is real: processes started by MindSpore's launcher, a fault bound to a device, replays, isolation, and
checkpoints from which the job resumes. All output and checks are read from the files of the job.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from asd.demo.story import Story
from asd.event import Event
from asd.exporters.run_files.event_log import read_events
from asd.rundir.names import event_files
from asd.supervisor.processes import kept
from asd.supervisor.record import Attempt, load_record
from asd.verdict import Level

_STEPS, _SAVE_EVERY, _FAULT_STEP = 30, 5, 18
_FAULT = f"gradient:layers.0.ffn_norm:flip=30:step={_FAULT_STEP}"
_ACTS = {
    "persistent": (
        f"The device of rank 1 computes wrongly from step {_FAULT_STEP} on, and stays broken.",
        ["--fault", f"{_FAULT}:duration=1000000"],
    ),
    "transient": (f"The device of rank 1 computes wrongly in step {_FAULT_STEP}, once.", ["--fault", _FAULT, "--once"]),
    "poisoned": (
        f"Both devices are healthy; the batch of rank 0 in step {_FAULT_STEP} is damaged.",
        ["--poisoned", str(_FAULT_STEP)],
    ),
}


@dataclass
class Told:
    """Result of a job.

    Attributes:
        code: Exit code of `asd run`.
        said: Its messages, without `asd: `; shown if a check failed.
        ends: Last results by rank: `digest` and `loss`.
        losses: Loss of each step of rank 0, attempt after attempt: `(seconds since the epoch, step, loss)`.
        attempts: Attempts in the record of the supervisor.
        events: Events of all ranks and of the supervisor, by time; anomalies of the first level only.
    """

    code: int = -1
    said: list[str] = field(default_factory=list)
    ends: dict[int, dict[str, Any]] = field(default_factory=dict)
    losses: list[tuple[float, int, float]] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def of(self, kind: str) -> list[Event]:
        """Returns the events of a kind."""
        return [event for event in self.events if event.kind == kind]

    def devices(self) -> list[list[int]]:
        """Returns the devices of each attempt; the same ones in a row once, as MindSpore may crash at a job's end."""
        return [each for each, _ in groupby(attempt.devices for attempt in self.attempts)]


class Acts(Story):
    """Acts of the demo: it runs jobs and prints which checks passed."""

    def tell(self, acts: Sequence[str]) -> dict[str, Any]:
        """Runs `acts`; returns the checks and the path of the picture."""
        self.say(
            "\nA job of two devices and a spare, each time `asd run --ranks 2 --spares 1 -- python ...`\n"
            "Without a fault and without detection, to know how it should end:"
        )
        clean = self._play("clean", [], {"NPU_ASD_ENABLE": "0"})
        checks, played = {"the job without a fault ends": clean.code == 0}, {"clean": clean}
        bad = clean.devices()[0][1] if clean.attempts else 1
        for act in acts:
            title, options = _ACTS[act]
            self.say(f"\n{title}")
            played[act] = told = self._play(act, [*options, "--device", str(bad)], {})
            came_true = _check(act, told, clean, bad)
            self._narrate(told)
            if not all(came_true.values()):
                self.say("\n".join(f"   asd: {sentence}" for sentence in told.said))
            self.tell_checks(came_true)
            checks |= {f"{act}: {check}": is_true for check, is_true in came_true.items()}
        picture = self._draw(played)
        self.say(f"\n   Picture:  {picture}\n   Runs:     {self.out}/{{{','.join(played)}}}")
        return {"checks": checks, "job_picture": str(picture)}

    def _play(self, name: str, options: Sequence[str], environ: dict[str, str]) -> Told:
        folder, args = self.out / name, self.args
        python, saved = sys.executable, f"{folder}/checkpoints"
        supervisor = [python, "-m", "asd", "run", "--ranks", "2", "--spares", "1", "--"]
        training = f"-m asd.demo.llama_job {_STEPS} --save-every {_SAVE_EVERY}"
        words = [*supervisor, python, *training.split(), "--mode", args.mode, "--folder", saved, *options]
        settings = {
            "ASD_RUN_DIR": str(folder),
            "ASD_RUN": name,
            "ASD_ON_ANOMALY": "stop",
            "ASCEND_RT_VISIBLE_DEVICES": "",
            "NPU_ASD_ENABLE": "1",
            **environ,
        }
        told, bar = Told(), self.bar(f"   {name}", _STEPS)
        with subprocess.Popen(
            kept(words),  # the keeper ends all that is left if this process is killed
            env={**os.environ, **settings},
            text=True,
            errors="replace",
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            reader = threading.Thread(target=_listen, args=(process.stderr, told.said), daemon=True)
            reader.start()
            for line in process.stdout or ():
                _take(line, told, bar)
            reader.join()
        told.code = process.returncode
        bar.end()
        record = load_record(folder)
        told.attempts = record.attempts if record is not None else []
        events = sorted((event for path in event_files(folder) for event in read_events(path)), key=_time)
        told.events = [event for event in events if event.kind != "anomaly" or event.level is Level.ERROR]
        return told

    def _narrate(self, told: Told) -> None:
        for event in told.of("anomaly")[:1]:
            limit = f"{event.limits[0]:.3g}" if event.limits else "none"
            done = "refused" if event.refused else "healed" if event.healed else "applied"
            self.say(
                f"   step {event.step}, rank {event.rank} on {event.device}: {event.code} {event.checkpoint} value "
                f"{event.value:.3g}, limit {limit}; the update is {done}"
            )
        for event in told.of("replay")[:1]:
            self.say(f"   replay of the step: {event.verdict}: {event.reason}")

    def _draw(self, played: dict[str, Told]) -> Path:
        from asd.demo.pictures import Lane, draw_jobs

        titles = {"clean": "No fault, no detection", **{act: title for act, (title, _) in _ACTS.items()}}
        picture = self.out / "job.svg"
        lanes = {name: Lane(titles[name], told.losses, told.attempts, told.events) for name, told in played.items()}
        draw_jobs(picture, lanes)
        return picture


def _check(act: str, told: Told, clean: Told, bad: int) -> dict[str, bool]:
    first = next(iter(told.of("anomaly")), None)
    verdicts, isolated = (
        {event.verdict for event in told.of("replay")},
        {event.device for event in told.of("isolation")},
    )
    devices = told.devices()
    culprit = 0 if act == "poisoned" else 1
    as_clean = {
        "weights, optimizer and loss in the end are those of the clean run, bit for bit": bool(told.ends)
        and told.ends == clean.ends
    }
    checks = {
        f"found in step {_FAULT_STEP} on rank {culprit}, and the update refused": first is not None
        and (first.step, first.rank, first.harmless) == (_FAULT_STEP, culprit, True)
    }
    if act == "persistent":
        return checks | {
            "the replay says persistent hardware": verdicts == {"persistent"},
            "this device is isolated, and no other": isolated == {f"CPU:{bad}"},
            "the spare took its place": devices[:1] == clean.devices() and len(devices) == 2 and bad not in devices[1],
            **as_clean,
        }
    if act == "transient":
        return checks | {
            "the replay says transient hardware: a strike": verdicts == {"transient"},
            "no device is isolated": not isolated,
            "the same devices went on": len(told.attempts) > 1 and devices == clean.devices(),
            **as_clean,
        }
    named = f"the batch of rank 0 in step {_FAULT_STEP}"
    return checks | {
        "the replay says software or data": verdicts == {"software"},
        "no device is isolated": not isolated,
        "the batch is named": any(named in event.reason for event in told.of("replay")),
        "the job ends with exit code 17, which says so": told.code == 17,
    }


def _time(event: Event) -> float:
    return event.time


def _listen(lines: Iterable[str] | None, said: list[str]) -> None:
    said += [line.removeprefix("asd: ").strip() for line in lines or () if line.startswith("asd: ")]


def _take(line: str, told: Told, bar: Any) -> None:
    rank, _, text = line.partition(": ")
    word, _, rest = text.partition(" ")
    if not (rank.startswith("rank") and rank[4:].isdigit()):
        return
    if word == "DONE":
        # An attempt without a remaining step has no loss; the loss of the one before is kept.
        found = {name: value for name, value in json.loads(rest).items() if value is not None}
        told.ends[int(rank[4:])] = {**told.ends.get(int(rank[4:]), {}), **found}
    elif word == "STEP" and rank == "rank0":
        step, loss = rest.split()
        told.losses.append((time.time(), int(step), float(loss)))
        bar.show(int(step), f"{step}/{_STEPS} steps, loss {float(loss):.4f}")
