"""Ranks that leave in a run folder what a training leaves, for those who read it."""

import math
import random

from asd import Config, Level
from asd.exporters.bundle.sink import Evidence
from asd.exporters.run_files.event_log import EventLog
from asd.judge.monitor import Monitor
from asd.origin import Origin
from asd.rules.reading import Reading
from asd.rundir.names import event_file, status_file
from tests.support.events import event_maker

START = 1_790_000_000.0
SITES = ("model.layers.0.attention_norm", "model.layers.1.ffn_norm", "model.norm_out")
OUT = "model.norm_out"


class Rank:
    """A rank whose training is the real monitor with the real sinks and a clock that goes two seconds a step."""

    def __init__(self, folder, rank=0, *, run="run1", host="node7", device=None, sites=SITES, evidence=True):
        self.folder, self.now, self.sites = folder, START + rank / 100, sites
        self.origin = Origin(run, rank, host, device or f"Ascend:{rank}")
        config = Config(protection="document", enable=1, run_dir=str(folder), on_anomaly="skip")
        sinks = [EventLog(event_file(folder, rank)), *([Evidence(config, self.origin)] if evidence else [])]
        self.monitor = Monitor(config, self.origin, sinks, clock=lambda: self.now)
        self.values = random.Random(rank)
        self.monitor.begin()

    def train(self, first, last, broken=None, *, refused=None):
        """Steps `first` to `last`; `broken` has step to the values of some checkpoints."""
        for step in range(first, last + 1):
            self.now += 2
            values = {site: self.values.uniform(0.01, 0.03) for site in self.sites}
            wrong = (broken or {}).get(step, {})
            readings = [Reading(site, value, -self.sites.index(site)) for site, value in {**values, **wrong}.items()]
            self.monitor.judge(step, readings, refused=bool(wrong) if refused is None else refused)
        return self

    def tell(self, kind, step, **more):
        self.now += 1
        where = {"run": self.origin.run, "rank": self.origin.rank, "host": self.origin.host}
        usual = {"checkpoint": "", "value": math.nan, "limits": (), "level": Level.NORMAL, "reason": ""}
        event = event_maker(**where, device=self.origin.device, **usual, refused=False)
        self.monitor.publish(event(step, kind=kind, time=self.now, **more))
        return self

    def end(self, **status):
        """Ends the training; or leaves it with a status of this kind."""
        if status:
            for name, value in status.items():
                setattr(self.monitor.status, name, value)
        else:
            self.monitor.end()
        status_file(self.folder, self.origin.rank).write_text(self.monitor.status.to_json())
        return self
