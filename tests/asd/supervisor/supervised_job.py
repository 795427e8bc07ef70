"""Jobs for the tests of the supervisor: a launcher with msrun's options, and a training without MindSpore."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import asd
from tests.support.waiting import processes_with

LAUNCHER = """
import os, signal, subprocess, sys, time
visible = os.environ["ASCEND_RT_VISIBLE_DEVICES"].split(",")
if visible != sorted(visible, key=int):
    sys.exit("EE1001: ASCEND_RT_VISIBLE_DEVICES must be in ascending order")  # as CANN 8.0 to 9.1
options = dict(word[2:].split("=") for word in sys.argv[1:] if word.startswith("--"))
words = [word for word in sys.argv[1:] if not word.startswith("--")]
scheduler, ranks = subprocess.Popen([sys.executable, *words], env={**os.environ, "MS_ROLE": "MS_SCHED"}), []
for rank in range(int(options["worker_num"])):
    log = open(f"{options['log_dir']}/worker_{rank}.log", "w")
    environ = {**os.environ, "RANK_ID": str(rank), "MS_ROLE": "MS_WORKER"}
    words_of_rank = [sys.executable, *words]
    ranks.append(subprocess.Popen(words_of_rank, env=environ, stdout=log, stderr=log, start_new_session=True))
while any(rank.poll() is None for rank in ranks):
    if any(rank.poll() for rank in ranks) or scheduler.poll() is not None:
        for rank in ranks:
            rank.kill()
    time.sleep(0.02)
scheduler.kill()
sys.exit(any(rank.wait() for rank in ranks))
"""

TRAINING = """
import json, os, signal, sys, time
if os.environ.get("MS_ROLE") == "MS_SCHED":
    time.sleep(600)
from pathlib import Path
from asd.event import Event
from asd.origin import Origin
from asd.exporters.run_files.event_log import EventLog
from asd.rundir.manifest import PROOFS, Health, write_manifest
from asd.rundir.names import event_file, status_file
from asd.rundir.disk import write_whole
from asd.judge.status import Status
from asd.verdict import Level

plan = json.loads(Path("plan.json").read_text())
rank, device, run = int(os.environ["RANK_ID"]), int(os.environ["ASD_DEVICE"]), os.environ["ASD_RUN"]
run_dir = Path(os.environ["ASD_RUN_DIR"])
attempt = int(run.rpartition("+")[2]) if "+" in run else 1
origin = Origin(run, rank, plan.get("host", os.environ["ASD_NODE"]), f"CPU:{device}")
log = EventLog(event_file(run_dir, rank))
status = Status(origin=origin)
resume = os.environ["ASD_RESUME_FROM"]
made = json.loads(Path(resume).read_text()) if resume else []
began = len(made)


for number in plan.get("heed", []) if rank in plan.get("heeding", [rank]) else []:
    signal.signal(number, lambda number, _: os.write(1, b"got %d\\n" % number))


def tell(step, kind, level, **more):
    value = plan.get("value", 1e9) if plan.get("same") else 1e9 + attempt
    log(Event(origin=origin, step=step, checkpoint="norm", value=value, limits=(1e6,), level=level, kind=kind,
              refused=True, rule="threshold", feature="l2", reason="test", time=time.time(), **more))


for step in range(len(made) + 1, 9):
    for fault in plan["faults"]:
        here = fault.get("device", device) == device and fault.get("rank", rank) == rank
        if fault.get("resumed", began) != began:
            continue
        if fault["step"] != step or attempt not in fault.get("attempts", [attempt]):
            continue
        if fault["what"] == "exit" and here:
            sys.exit(fault["code"])
        if fault["what"] == "signal" and here:
            os.kill(os.getpid(), fault["number"])
        if fault["what"] == "hang" and here:
            time.sleep(600)
        if fault["what"] in ("report", "anomaly") and here:
            tell(step, "anomaly", Level.ERROR)
            if fault.get("verdict"):
                tell(step, "replay", Level.ERROR, verdict=fault["verdict"])
        if fault["what"] == "anomaly":
            used = os.environ["ASD_DEVICES"].split(",")
            if here or str(fault.get("device", device)) in used:
                time.sleep(0.3)  # the others have raised too
                sys.exit(1)
    made.append(step)
    status.step, status.steps = step, status.steps + 1
    if step > plan.get("unwatched", 0):
        write_whole(status_file(run_dir, rank), status.to_json())
    if rank == 0 and step % 2 == 0:
        file = run_dir / "kept" / f"{run}-step{step}.ckpt"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(made))
        health = Health()
        health.proofs |= PROOFS if step == plan.get("verified") else set()
        write_manifest(file, step=step, origin=origin, health=health)
    print("step", step, flush=True)
    time.sleep(plan.get("pauses", {}).get(str(step), plan.get("pause", 0)))
print("made", made, "on", device, "of", os.environ["ASD_DEVICES"], flush=True)
"""


class Workplace:
    """An empty folder with a launcher and a training, and `asd run` in it."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "bin").mkdir()
        for name, text in (("msrun", LAUNCHER), ("training", TRAINING)):
            program = folder / "bin" / name
            program.write_text(f"#!{sys.executable}\n{text}")
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("NPU_ASD_", "ASD_", "ASCEND"))}
        self.mark = f"mark-{folder.name}-{os.getpid()}"
        python_path = str(Path(asd.__file__).parents[1])
        self.environ = {**kept, "PYTHONPATH": python_path, "ASD_RUN": "job", "ASD_NODE": "here"}
        self.environ["SUPERVISOR_TEST"] = self.mark

    def plan(self, *faults, **more):
        """What goes wrong."""
        (self.folder / "plan.json").write_text(json.dumps({"faults": faults, **more}))

    def start(self, *options, command=None, **environ):
        """`asd run` with `options`, running."""
        program = [str(self.folder / "bin" / "training")] if command is None else command
        command = [sys.executable, "-m", "asd", "run", *options, "--", *program]
        pipes = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=self.folder, env={**self.environ, **environ}, **pipes)

    def run(self, *options, timeout=60, **environ):
        """Exit code, output and sentences of `asd run`."""
        with self.start(*options, **environ) as process:
            out, err = process.communicate(timeout=timeout)
        return process.returncode, out, err

    def record(self):
        """The supervisor's record."""
        return json.loads((self.folder / "asd_run" / "supervisor.json").read_text())

    def has_rank(self, number, run="job"):
        """Whether that rank of that attempt was started."""
        marks = {f"RANK_ID={number}".encode(), f"ASD_RUN={run}".encode()}
        found = [pid for pid, words in self.processes().items() if "bin/training" in words[1]]
        return any(marks <= {*Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")} for pid in found)

    def processes(self):
        """Everything that was started here and lives."""
        return processes_with(self.mark)
