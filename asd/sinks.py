"""Opens the sinks of events.

A sink is any callable that takes an `Event`. Distributions offer factories under the entry-point group `asd.sinks`,
each called as `factory(config, origin)`; the package's own are in `asd.exporters`. They are loaded by name, so that the
core and the operators do not import what exporters need.

A sink may have more than `__call__(event)`:

- `values(step, checkpoint, verdict)`: is called with every judged value when `NPU_ASD_ENABLE=3`.
- `after_step(monitor, events)`: is called after every judged step and its events, when the training begins, and when it
  ends. It may read `monitor.status`, `monitor.history`, `monitor.readings` and
  `monitor.loss_scale`.
- `place(step) -> str`: names the folder where it will keep the evidence of `step`, empty for none; asked before the
  first-level events of that step are made.

An exception in any of these is counted and reported as a problem of the detector, and the other sinks go on.
"""

import sys
from importlib.metadata import EntryPoint, entry_points

from asd.config import Config
from asd.judge.delivery import Sink
from asd.origin import Origin

GROUP = "asd.sinks"
_OWN = {
    "event_log": "asd.exporters.run_files.event_log:open_event_log",
    "evidence": "asd.exporters.bundle.sink:open_evidence",
    "log": "asd.exporters.run_files.log:open_log",
    "recording": "asd.exporters.run_files.values:open_recording",
    "status_file": "asd.exporters.run_files.status_file:open_status_file",
}


def open_sinks(config: Config, origin: Origin) -> list[Sink]:
    """Opens the package's own sinks and every installed one.

    A sink that cannot be opened is named on standard error and left out: a full disk must not prevent a training.
    """
    sinks: list[Sink] = []
    own = (EntryPoint(name, target, GROUP) for name, target in _OWN.items())
    # A set, because the metadata of an older editable install also name the package's own.
    for entry in sorted({*own, *entry_points(group=GROUP)}, key=lambda entry: entry.name):
        try:
            sinks.append(entry.load()(config, origin))
        except Exception as error:  # whatever a plugin does wrong
            print(f"asd: sink {entry.name} can't be opened and is left out: {error}", file=sys.stderr)
    return sinks
