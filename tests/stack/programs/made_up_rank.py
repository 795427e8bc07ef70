"""A rank without a network: `made_up_rank.py RANK` judges made-up values, some of them wrong, until it is ended."""

import socket
import sys
import time
from pathlib import Path

from asd import Config, Event, Level
from asd.judge.monitor import Monitor
from asd.origin import Origin
from asd.rules.reading import Reading
from asd.sinks import open_sinks

WRONG = (5, 8, 11)

rank = int(sys.argv[1])
config = Config.of_process(NPU_ASD_ENABLE="1", ASD_ON_ANOMALY="skip", ASD_RUN="made-up")
origin = Origin(config.name_of_run(), rank, socket.gethostname(), f"Ascend:{rank}")
monitor = Monitor(config, origin, open_sinks(config, origin))


def reading(order, value):
    return Reading(f"layers.{order}.norm", value, order)


def tell(kind, verdict):
    """What a replay or a fault handler would say of this rank's device because of the last wrong step."""
    empty = {"checkpoint": "", "limits": (), "refused": False, "level": Level.NORMAL, "reason": "made up"}
    fields = {"kind": kind, "verdict": verdict, "rule": config.rule, "feature": "l2", "value": 2e6}
    monitor.publish(Event(origin=origin, step=max(WRONG), time=time.time(), **fields, **empty))


monitor.begin()
while not (Path(config.run_dir) / "go").exists():  # as while a graph is compiled: every series is scraped at 0
    time.sleep(0.05)
for step in range(1, 10_000):
    readings = [reading(order, 0.5 + order + step % 7) for order in range(5)]
    wrong = rank == 1 and step in WRONG
    if wrong:
        readings[2] = reading(2, float("nan") if step == 8 else 5e6)
    if rank == 0 and step == 6:
        readings[1] = reading(1, 2e4)
        tell("isolation", "persistent")
    monitor.status.step_seconds += 0.2
    monitor.status.check_seconds += 0.001
    monitor.judge(step, readings, refused=wrong)
    if rank == 1 and step == 12:
        tell("replay", "persistent")
        monitor.problem("made up")
        monitor.status.dropped["Evidence"] = 1
    if rank == 1 and step == 14:
        monitor.status.dropped["Evidence"] = 2  # as a series that is new has not increased in the eyes of Prometheus
    time.sleep(0.2)
