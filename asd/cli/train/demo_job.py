"""The second part of the demo: a job of two devices and a spare, under `asd run`, in three acts.

Everything here is real: processes started by MindSpore's launcher, a fault bound to a device, replays, isolation, and
checkpoints from which the job goes on. What is told and checked was read from what the job left behind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from asd.cli.shared.progress import Progress
from asd.event import Event
from asd.supervisor.record import Attempt, load_record
from asd.verdict import Level

__all__ = ["Acts"]

_STEPS, _SAVE_EVERY, _FAULT_STEP = 30, 5, 18
_FAULT = f"gradient:layers.0.ffn_norm:flip=30:step={_FAULT_STEP}"
_KEEPER = Path(__file__).resolve().parents[2] / "supervisor" / "keeper.py"
_METRICS = ("asd_anomalies_total", "asd_refused_updates_total", "asd_replay_verdicts_total", "asd_device_isolated")
_ACTS = {
    "persistent": (
        f"Device 1 computes wrongly from step {_FAULT_STEP} on, and stays broken.",
        ["--fault", f"{_FAULT}:duration=1000000", "--device", "1"],
    ),
    "transient": (
        f"Device 1 computes wrongly in step {_FAULT_STEP}, once.",
        ["--fault", _FAULT, "--device", "1", "--once"],
    ),
    "poisoned": (
        f"Both devices are healthy; the batch of rank 0 in step {_FAULT_STEP} is damaged.",
        ["--poisoned", str(_FAULT_STEP)],
    ),
}


@dataclass
class Told:
    """What a job came to.

    Attributes:
        code: Exit code of `asd run`.
        said: Its sentences, without `asd: `.
        ends: Per rank what it had in the end: `digest` and `loss`.
        losses: The loss of each step of rank 0, attempt after attempt: `(seconds since the epoch, step, loss)`.
        attempts: From the record of the supervisor.
        events: Of all ranks and of the supervisor, by time.
    """

    code: int = -1
    said: list[str] = field(default_factory=list)
    ends: dict[int, dict[str, Any]] = field(default_factory=dict)
    losses: list[tuple[float, int, float]] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def of(self, kind: str) -> list[Event]:
        """The events of a kind; anomalies of the first level only."""
        return [event for event in self.events if event.kind == kind and (kind != "anomaly" or _is_first(event))]

    def isolated(self) -> list[str]:
        """The devices that were taken out."""
        return sorted({event.device for event in self.of("isolation")})


class Acts:
    """Plays the acts and tells what came true.

    Args:
        out: Folder for what they leave.
        seed: For weights and data.
        mode: `graph` or `pynative`.
        is_quiet: Whether nothing is printed.
    """

    def __init__(self, out: Path, *, seed: int, mode: str, is_quiet: bool) -> None:
        self._out, self._is_quiet = out, is_quiet
        self._common = [str(_STEPS), "--save-every", str(_SAVE_EVERY), "--seed", str(seed), "--mode", mode]

    def tell(self, acts: Sequence[str]) -> dict[str, Any]:
        """Plays `acts`; returns the checks and where the pieces are."""
        self._say(
            "\nA job of two devices and a spare, each time `asd run --ranks 2 --spares 1 -- python ...`\n"
            "Without a fault and without detection, to know how it should end:"
        )
        clean = self._play("clean", [], {"NPU_ASD_ENABLE": "0"})
        checks, played = {"the job without a fault ends": clean.code == 0}, {"clean": clean}
        for act in acts:
            title, options = _ACTS[act]
            self._say(f"\n{title}")
            played[act] = told = self._play(act, options, {})
            self._narrate(act, told)
            came_true = _check(act, told, clean)
            for check, is_true in came_true.items():
                self._say(f"   {'yes' if is_true else 'NO '}  {check}")
            checks |= {f"{act}: {check}": is_true for check, is_true in came_true.items()}
        picture = self._draw(played)
        self._say(f"\n   Picture:  {picture}\n   Runs:     {self._out}/{{{','.join(played)}}}")
        return {"checks": checks, "job_picture": str(picture)}

    def _play(self, name: str, options: Sequence[str], environ: dict[str, str]) -> Told:
        folder, python = self._out / name, sys.executable
        command = [
            python,
            "-I",
            str(_KEEPER),
            str(os.getpid()),  # ends all that is left if this process is killed
            python,
            "-m",
            "asd",
            "run",
            "--ranks",
            "2",
            "--spares",
            "1",
            "--checkpoints",
            f"{folder}/checkpoints",
            "--",
            python,
            "-m",
            "asd.operators.drill.job_workload",
            *self._common,
            "--folder",
            f"{folder}/checkpoints",
            *options,
        ]
        settings = {
            "ASD_RUN_DIR": str(folder),
            "ASD_RUN": name,
            "ASD_ON_ANOMALY": "stop",
            "NPU_ASD_ENABLE": "1",
            **environ,
        }
        told = Told()
        progress = None if self._is_quiet else Progress(f"   {name}", _STEPS)
        with subprocess.Popen(
            command,
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
                _take(line, told, progress)
            reader.join()
        told.code = process.returncode
        if progress is not None:
            progress.close()
        record = load_record(folder)
        told.attempts = record.attempts if record is not None else []
        told.events = _events(folder)
        return told

    def _narrate(self, act: str, told: Told) -> None:
        for event in told.of("anomaly")[:1]:
            limit = f"{event.limits[0]:.3g}" if event.limits else "none"
            self._say(
                f"   step {event.step}, rank {event.rank} on {event.device}: {event.code} {event.checkpoint} value "
                f"{event.value:.3g}, limit {limit}; the update is {'refused' if event.refused else 'applied'}"
            )
        for event in told.of("replay")[:1]:
            self._say(f"   the step is made again: {event.verdict}: {event.reason}")
        for sentence in told.said:
            self._say(f"   asd: {sentence}")
        if act == "persistent" and not self._is_quiet:
            for line in _scrape(self._out / act):
                self._say(f"   /metrics: {line}")

    def _draw(self, played: dict[str, Told]) -> Path:
        from asd.exporters.pictures.job import Lane, draw_jobs

        picture = self._out / "job.svg"
        lanes = {
            name: Lane(
                _ACTS[name][0] if name in _ACTS else "No fault, no detection", told.losses, told.attempts, told.events
            )
            for name, told in played.items()
        }
        draw_jobs(picture, lanes)
        return picture

    def _say(self, text: str) -> None:
        if not self._is_quiet:
            print(text, flush=True)


def _check(act: str, told: Told, clean: Told) -> dict[str, bool]:
    anomalies, verdicts = told.of("anomaly"), {event.verdict for event in told.of("replay")}
    first = anomalies[0] if anomalies else None
    culprit = 0 if act == "poisoned" else 1
    checks = {
        f"found in step {_FAULT_STEP} on rank {culprit}, and the update refused": first is not None
        and (first.step, first.rank, first.refused) == (_FAULT_STEP, culprit, True),
    }
    as_clean = bool(told.ends) and told.ends == clean.ends
    if act == "persistent":
        checks["the replay says persistent hardware"] = verdicts == {"persistent"}
        checks["device 1 is isolated, and no other"] = told.isolated() == ["CPU:1"]
        checks["the spare took its place"] = _devices(told) == [[0, 1], [0, 2]]
        checks["weights, optimizer and loss in the end are those of the clean run, bit for bit"] = as_clean
    elif act == "transient":
        checks["the replay says transient hardware: a strike"] = verdicts == {"transient"}
        checks["no device is isolated"] = told.isolated() == []
        checks["the same devices went on"] = len(told.attempts) > 1 and _devices(told) == [[0, 1]]
        checks["weights, optimizer and loss in the end are those of the clean run, bit for bit"] = as_clean
    else:
        checks["the replay says software or data"] = verdicts == {"software"}
        checks["no device is isolated"] = told.isolated() == []
        named = f"the batch of rank 0 in step {_FAULT_STEP}"
        checks["the batch is named"] = any(named in event.reason for event in told.of("replay"))
        checks["the job ends with exit code 17, which says so"] = told.code == 17
    return checks


def _devices(told: Told) -> list[list[int]]:
    """Of the attempts, those that follow one another with the same devices once: MindSpore may crash at a job's end."""
    return [devices for devices, _ in groupby(each.devices for each in told.attempts)]


def _is_first(event: Event) -> bool:
    return event.level is Level.ERROR


def _listen(lines: Iterable[str] | None, said: list[str]) -> None:
    for line in lines or ():
        if line.startswith("asd: "):
            said.append(line.removeprefix("asd: ").strip())


def _take(line: str, told: Told, progress: Progress | None) -> None:
    rank, _, text = line.partition(": ")
    word, _, rest = text.partition(" ")
    if not (rank.startswith("rank") and rank[4:].isdigit()):
        return
    if word == "DONE":
        # An attempt that had no step left to make knows no loss; that of the one before stands.
        found = {name: value for name, value in json.loads(rest).items() if value is not None}
        told.ends[int(rank[4:])] = {**told.ends.get(int(rank[4:]), {}), **found}
    elif word == "STEP" and rank == "rank0":
        step, loss = rest.split()
        told.losses.append((time.time(), int(step), float(loss)))
        if progress is not None:
            progress(int(step), float(loss))


def _events(folder: Path) -> list[Event]:
    lines = [line for file in sorted(folder.glob("events-*.jsonl")) for line in file.read_text().splitlines()]
    return sorted(map(Event.from_json, lines), key=lambda event: event.time)


def _scrape(run_dir: Path) -> list[str]:
    """What Prometheus would read of the run: the lines that are not 0 of a few metrics, from a real endpoint."""
    command = [sys.executable, "-m", "asd", "exporter", "--run-dir", str(run_dir), "--port", "0", "--poll", "0.2"]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            for line in process.stdout or ():
                address = next((word for word in line.split() if word.startswith("http://")), "")
                if address:
                    break
            else:
                return []
            end = time.monotonic() + 10
            while not _has_all(found := _interesting(address)) and time.monotonic() < end:
                time.sleep(0.2)  # it serves before it has read, and when it has read some
        finally:
            process.terminate()
    return found


def _has_all(samples: list[str]) -> bool:
    # Refused updates stand in the ranks' status, which is that of the last attempt; it refused none.
    awaited = set(_METRICS) - {"asd_refused_updates_total"}
    return awaited <= {sample.partition("{")[0] for sample in samples}


def _interesting(address: str) -> list[str]:
    with urllib.request.urlopen(address, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    samples = [line.partition(" # ")[0] for line in lines if line.startswith(_METRICS)]
    return [sample for sample in samples if float(sample.rpartition(" ")[2]) > 0]
