"""A training without a network, whose device computes wrongly in every fifth step until it is ended."""

import time
from pathlib import Path

from asd import Config
from asd.judge.monitor import Monitor
from asd.origin import Origin
from asd.rules.reading import Reading
from asd.sinks import open_sinks

config = Config.of_process(NPU_ASD_ENABLE="1", ASD_ON_ANOMALY="skip")
origin = Origin(config.name_of_run(), 0, config.name_of_node(), "Ascend:3")
monitor = Monitor(config, origin, open_sinks(config, origin))
monitor.begin()
while not (Path(config.run_dir) / "go").exists():
    time.sleep(0.05)
for step in range(1, 10_000):
    wrong = step % 5 == 0
    value = 5e6 + step if wrong else 0.5 + step % 7
    reading = Reading("layers.0.norm", value)
    monitor.judge(step, [reading], refused=wrong)
    time.sleep(0.2)
