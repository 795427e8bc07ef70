"""A small Llama that resumes from its newest checkpoint: `resumable.py ACTION MODE FOLDER STEPS`."""

import json
import sys
from pathlib import Path

from asd import Config
from asd.operators.drill import workload
from asd.operators.monitor.resume import state_path

action, mode, folder, steps = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
workload.use_mode(mode)
# Its limit changes in every step, so a rule that forgot anything shows.
CONFIG = Config(protection="document", enable=1, rule="silent_check_v3", run_dir=str(folder / "run"))


def newest():
    """The last checkpoint whose state was written as well."""
    files = sorted(folder.glob("*.ckpt"), key=lambda file: file.stat().st_mtime)
    return next((file for file in reversed(files) if state_path(file, 0).exists()), None)


def train(**options):
    events = []
    done = workload.train(workload.SMALL, steps, config=CONFIG, sinks=[events.append], save_every=4, **options)
    history = {name: [list(point) for point in points] for name, points in done.history.items()}
    problems = [event.reason for event in events if event.kind == "problem"]
    others = [event.kind for event in events if event.kind != "problem"]
    return {"losses": done.losses, "digest": done.digest, "history": history, "problems": problems, "others": others}


folder.mkdir(exist_ok=True)
start = newest()
result = {"from": start.name if start else None}
result["resumed"] = train(folder=folder, resume_from=start, tell=lambda step, loss: print("STEP", step, flush=True))
if action == "compare":
    result["undisturbed"] = train()
print(json.dumps(result))
