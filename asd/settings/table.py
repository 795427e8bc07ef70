"""The table of settings: one row says everything about each variable.

The two thresholds take what every vendor release takes the same way; what a vendor would replace by the default in
silence is an error here, because a mistyped threshold must not pass unnoticed.
"""

from collections.abc import Mapping
from typing import Any, Final

from asd.rules.base import SIGMA, UPPER
from asd.rules.registry import RULES
from asd.settings.options import DETECTORS
from asd.settings.values import DIGITS, FOLDER, NAME, ValueFormat, Variable, choice, pair

SET_BY_RUN = ("ASD_DEVICES", "ASD_DRILL", "ASD_RESUME_FROM", "ASD_RESUME_STEP")
"""Variables that `asd run --ranks` and `asd drill` pass to a training besides; they are not settings."""
PROTECTIONS: Final = ("full", "document")
_SHARE_MADE_AGAIN = 0.01
FORMER = {
    "MS_NPU_ASD_CONFIG": "ASD_RULE=combined",
    "ASD_BUDGET": "the metrics asd_check_seconds_total and asd_step_seconds_total",
}
"""Variables of the vendor and of earlier versions that are not read, each with its replacement."""
_MODE = ValueFormat(
    lambda text: int(text) if text in {"0", "1", "2", "3"} else None,
    lambda value: type(value) is int and 0 <= value <= 3,
    "it must be 0 (off), 1 or 2 (detect and act) or 3 (the same, and log every value)",
)


VARIABLES = (
    Variable(
        "NPU_ASD_ENABLE",
        "enable",
        _MODE,
        "`0` off; `1` and `2` detect, report, and act on a first-level anomaly; `3` the same, and every normal value "
        "at INFO",
    ),
    Variable(
        "NPU_ASD_UPPER_THRESH",
        "upper",
        pair(UPPER),
        "first- and second-level threshold of a value; whole numbers from 3 on, the first above the second",
    ),
    Variable(
        "NPU_ASD_SIGMA_THRESH",
        "sigma",
        pair(SIGMA),
        "first- and second-level threshold of a value's jump, in widths of the range seen so far",
    ),
    Variable(
        "ASD_ON_ANOMALY",
        "on_anomaly",
        choice(("log", "skip", "stop")),
        "effect of a first-level anomaly: `log` only reports it, `skip` refuses the update and continues, `stop` "
        "refuses it and ends the training",
    ),
    Variable(
        "ASD_PROTECTION",
        "protection",
        choice(PROTECTIONS),
        "`full` turns on all checks: the document's thresholds, learned ranges, state, checksums, confirmation, replay "
        "and manifests; other settings override it. `document` turns on only the rule `threshold` and the gate",
    ),
    Variable("ASD_RULE", "rule", choice(RULES), f"rule that judges: {', '.join(f'`{name}`' for name in RULES)}"),
    Variable("ASD_RUN_DIR", "run_dir", FOLDER, "folder of the events, counts, state and evidence of a run"),
    Variable(
        "ASD_RUN",
        "run",
        NAME,
        "name of the run in its events, the same on all ranks; default: from the ids of Slurm, MindCluster or "
        "Kubernetes and the address of msrun's scheduler, else from folder, time and process",
    ),
    Variable(
        "ASD_NODE",
        "node",
        NAME,
        "name of the machine in events, if it is not the host name: in a container, the scheduler's name of the node",
    ),
    Variable(
        "ASD_DEVICE", "device", DIGITS, "number of the device of this process in events, if it is not MindSpore's"
    ),
)
"""All but `ASD_OPTIONS`, which has a table of its own."""


def brought_by(protection: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of `Config` that a protection sets; fields in `given` are the user's and left out.

    `full` leaves out parts that do not fit the user's other settings: another rule has no detectors and no suspicions,
    and without refusals no step is re-run.

    >>> brought_by("full", {"on_anomaly": "log"})
    {'rule': 'adaptive', 'weight_hash': 16, 'detectors': ('state', 'checksum'), 'replay': False, 'manifest': True, \
'confirm': 0.0}
    """
    full = protection == "full"
    rule = given.get("rule", "adaptive" if full else "threshold")
    brought = {"rule": rule, "weight_hash": 16 if full else 0}
    if full and rule == "adaptive":
        brought["detectors"] = DETECTORS
    refuses = given.get("on_anomaly") != "log"
    looks_again = full and refuses and rule == "adaptive"
    brought |= {"replay": full and refuses, "manifest": full, "confirm": _SHARE_MADE_AGAIN if looks_again else 0.0}
    return {field: value for field, value in brought.items() if field not in given}
