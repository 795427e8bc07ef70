"""A small Llama that resumes from its newest checkpoint: `resumable.py ACTION MODE FOLDER STEPS`."""

import json
import shutil
import sys
from dataclasses import replace
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


def train(config=CONFIG, **options):
    events = []
    done = workload.train(workload.SMALL, steps, config=config, sinks=[events.append], save_every=4, **options)
    history = {name: [list(point) for point in points] for name, points in done.history.items()}
    problems = [event.reason for event in events if event.kind == "problem"]
    others = [event.kind for event in events if event.kind != "problem"]
    return {"losses": done.losses, "digest": done.digest, "history": history, "problems": problems, "others": others}


def damage(kind, state):
    if kind == "another model":
        state.write_text(state.read_text().replace("model.", "bert."))
    elif kind == "another rule":
        state.write_text(state.read_text().replace("silent_check_v3", "combined"))
    elif kind == "cut off":
        state.write_bytes(state.read_bytes()[:100])
    elif kind == "deleted":
        state.unlink()


folder.mkdir(exist_ok=True)
if action == "damaged":
    result = {"whole": train(folder=folder)}
    first = sorted(folder.glob("*.ckpt"), key=lambda file: file.stat().st_mtime)[0]
    for kind in ("another model", "another rule", "cut off", "deleted"):
        place = folder / kind
        place.mkdir()
        for file in (first, state_path(first, 0)):
            shutil.copy(file, place)
        damage(kind, state_path(place / first.name, 0))
        result[kind] = train(replace(CONFIG, run_dir=str(place)), resume_from=place / first.name)
else:
    start = newest()
    result = {"from": start.name if start else None}
    resumed = train(folder=folder, resume_from=start, tell=lambda step, loss: print("STEP", step, flush=True))
    result["resumed"] = resumed
    if action == "compare":
        result["undisturbed"] = train()
print(json.dumps(result))
