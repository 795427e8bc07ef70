"""How soon a bad device is out, what is lost by it, and whether it is the right one.

- Decision: `asd run --ranks 2 --spares 1` trains, one device gets a persistent fault in a random step. Measured is
  the time from the anomaly's event to that of the isolation, the replay of the step included. Target: under 2 steps and
  1 s.
- Lost work: the steps that were made before the fault and had to be made again. Target: no more than since the last
  good checkpoint; none where the training saves once more when a refused update ends it. The weights in the end must be
  those of an undisturbed training, bit for bit.
- Attribution: four ranks train together through random faults, each on a random rank, every second step. Right is a
  fault when that rank and no other is accused. Target: 199 of 200, and nobody accused in the steps between.

All of it with real processes, MindSpore's launcher and its collectives, on the CPU.
"""

import argparse
import json
import os
import platform
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from _measured import write

from asd.event import Event
from asd.exporters.run_files.event_log import read_events
from asd.supervisor.processes import kept as under_keeper
from asd.supervisor.worker import END

_TRAINING = Path(__file__).with_name("_recovery_training.py")
_STEPS, _EVERY = 16, 4
_RESULTS = Path(__file__).with_name("results") / "recovery.json"


def run(command: Sequence[str], folder: Path, environ: Mapping[str, str], seconds: float) -> str:
    """The output of a program that must end well; whatever it starts ends with it, and with this process."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ASD_", "NPU_ASD_", "MS_"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    program = subprocess.Popen(
        under_keeper(command),
        cwd=folder,
        text=True,
        env={**kept, "PATH": path, "GLOG_v": "3", **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, err = program.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        program.send_signal(END)
        raise SystemExit(f"recovery.py: {command[1:4]} took more than {seconds:g} s.") from None
    if program.returncode:
        raise SystemExit(f"recovery.py: {command[1:4]} ended with {program.returncode}:\n{out}\n{err}")
    return out


def told(lines: str) -> list[dict[str, Any]]:
    """The JSON objects among lines, without the name of the rank before them."""
    found = (re.search(r"\{.*\}$", line) for line in lines.splitlines())
    return [json.loads(match[0]) for match in found if match]


def supervised(folder: Path, fault: str, saves: bool) -> tuple[list[dict[str, Any]], list[Event]]:
    """One job from its begin to its end: what its ranks told, and its events."""
    folder.mkdir()
    words = [sys.executable, "-m", "asd", "run", "--ranks", "2", "--spares", "1", "--", sys.executable, str(_TRAINING)]
    out = run(
        [*words, "job", str(_STEPS), str(_EVERY), str(int(saves)), *([fault] if fault else [])],
        folder,
        {"ASD_RUN": "job", "ASD_RUN_DIR": str(folder)},
        300,
    )
    events = [event for path in sorted(folder.glob("events-*.jsonl")) for event in read_events(path)]
    return told(out), events


def recovery(folder: Path, clean: set[str], source: random.Random, *, saves: bool) -> dict[str, Any]:
    """One job with a persistent fault of one device in a random step."""
    step, device = source.randrange(_EVERY + 1, _STEPS + 1), source.randrange(2)
    site = source.choice(["first_norm", "middle_norm", "last_norm"])
    fault = f"device={device}:gradient:{site}:set={10 ** source.uniform(8, 20)}:step={step}:duration=100000"
    lines, events = supervised(folder, fault, saves)
    (isolation,) = [event for event in events if event.kind == "isolation"]
    alarm = min(event.time for event in events if event.kind == "anomaly" and event.run == "job")
    times = [line["seconds"] for line in lines if "step" in line and 1 < line["step"] < step and line["run"] == "job"]
    again = min(line["step"] for line in lines if line.get("run") == "job+2")
    return {
        "fault": fault,
        "right_device": isolation.device == f"CPU:{device}",
        "decision_s": isolation.time - alarm,
        "step_s": median(times),
        "lost_steps": step - again,
        "since_checkpoint": (step - 1) % _EVERY,
        "weights_as_undisturbed": {line["digest"] for line in lines if "digest" in line} == clean,
    }


def attribution(folder: Path, faults: int, seed: int, ranks: int = 4) -> dict[str, Any]:
    """Whom the ranks accuse in each of so many faults."""
    folder.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    launcher = shutil.which("msrun", path=str(Path(sys.executable).parent)) or "msrun"
    run(
        [
            launcher,
            f"--worker_num={ranks}",
            f"--local_worker_num={ranks}",
            f"--master_port={port}",
            "--join=True",
            "--log_dir=logs",
            str(_TRAINING),
            "faults",
            str(seed),
            str(faults),
        ],
        folder,
        {"NPU_ASD_ENABLE": "1", "ASD_ON_ANOMALY": "skip", "ASD_RUN_DIR": str(folder), "ASD_RUN": "faults"},
        300 + 10.0 * faults,
    )
    steps: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for rank in range(ranks):
        for line in told((folder / "logs" / f"worker_{rank}.log").read_text()):
            steps[line["step"]].append(line)
    struck = [lines for lines in steps.values() if lines[0]["victim"] is not None]
    wrong, detected = [], 0
    for lines in struck:
        accused = [line["rank"] for line in lines if "anomaly" in line["kinds"]]
        detected += any(line["kinds"] for line in lines)
        if accused != [lines[0]["victim"]]:
            wrong.append({"fault": lines[0]["fault"], "accused": accused})
    return {
        "ranks": ranks,
        "faults": len(struck),
        "detected": detected,
        "right": len(struck) - len(wrong),
        "wrong": wrong,
        "steps_between": len(steps) - len(struck),
        "accused_between": sum(any(line["kinds"] for line in lines) for lines in steps.values() if lines not in struck),
    }


def quartiles(values: Sequence[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, middle, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return {"q1": round(low, 4), "median": round(middle, 4), "q3": round(high, 4)}


def summary(jobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Figures over jobs of one kind."""
    return {
        "jobs": len(jobs),
        "decision_s": quartiles([job["decision_s"] for job in jobs]),
        "step_s": quartiles([job["step_s"] for job in jobs]),
        "in_time": sum(job["decision_s"] < 2 * job["step_s"] + 1 for job in jobs),
        "lost_steps": quartiles([job["lost_steps"] for job in jobs]),
        "since_checkpoint": quartiles([job["since_checkpoint"] for job in jobs]),
        "no_more_lost_than_since_the_checkpoint": sum(job["lost_steps"] <= job["since_checkpoint"] for job in jobs),
        "nothing_lost": sum(job["lost_steps"] == 0 for job in jobs),
        "right_device": sum(job["right_device"] for job in jobs),
        "weights_as_undisturbed": sum(job["weights_as_undisturbed"] for job in jobs),
        "each": list(jobs),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the figures and writes them as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples: python benchmarks/recovery.py --quick\n          python benchmarks/recovery.py --jobs 20",
    )
    parser.add_argument("--jobs", type=int, default=10, help="jobs of each kind (default %(default)s)")
    parser.add_argument("--faults", type=int, default=200, help="faults to attribute (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="decides about faults (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one job of each kind and 10 faults; nothing is written")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help=f"where to write (default {_RESULTS.name} in results)"
    )
    options = parser.parse_args(arguments)
    jobs, faults = (1, 10) if options.quick else (options.jobs, options.faults)
    if jobs < 1 or faults < 1:
        parser.error("--jobs and --faults must be at least 1")

    source = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        lines, _ = supervised(work / "clean", "", False)
        clean = {line["digest"] for line in lines if "digest" in line}
        plain, saving = [], []
        for number in range(jobs):
            plain.append(recovery(work / f"plain{number}", clean, source, saves=False))
            saving.append(recovery(work / f"saving{number}", clean, source, saves=True))
        results = {
            "python": platform.python_version(),
            "machine": f"{os.cpu_count()} cores",
            "quick": options.quick,
            "recovery": {"from_the_last_checkpoint": summary(plain), "saving_at_a_refused_update": summary(saving)},
            "attribution": attribution(work / "attribution", faults, options.seed),
        }
    for name, each in results["recovery"].items():
        print(
            f"{name}: decision {each['decision_s']} s at steps of {each['step_s']} s, in time in {each['in_time']} of "
            f"{each['jobs']}; lost steps {each['lost_steps']}; right device {each['right_device']}, weights as "
            f"undisturbed {each['weights_as_undisturbed']} of {each['jobs']}"
        )
    found = results["attribution"]
    print(
        f"attribution: {found['right']} of {found['faults']} faults over {found['ranks']} ranks are right, "
        f"{found['detected']} detected; {found['accused_between']} false in {found['steps_between']} steps between"
    )
    if options.json or not options.quick:
        target = options.json or _RESULTS
        target.parent.mkdir(parents=True, exist_ok=True)
        write(target, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
