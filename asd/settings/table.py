"""The table of settings: one row says everything about each.

Its variable, its field of `Config`, how its text is read, what is valid and what a value means. The reader, the checks
and `asd env` follow from it. The two thresholds take what every vendor release takes the same way; what a vendor would
replace by the default in silence is an error here, because a mistyped threshold must not pass unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from asd.errors import ConfigError
from asd.rules.base import SIGMA, UPPER
from asd.rules.registry import RULES
from asd.settings.combined import VARIABLE, CombinedConfig
from asd.settings.protection import PROTECTIONS
from asd.settings.values import (
    ADDRESS,
    DIGITS,
    FILE,
    FLAG,
    FOLDER,
    NAME,
    SHARE,
    SHARE_OF_TIME,
    Kind,
    choice,
    count,
    names,
    pair,
)

__all__ = ["SET_BY_RUN", "TIERS", "VARIABLES", "Variable"]

_ACTIONS = {
    "log": "report a first-level anomaly and go on",
    "skip": "refuse the update of a first-level anomaly and go on",
    "stop": "refuse the update of a first-level anomaly and end training",
}
TIERS = {
    "finite": "a tensor with an element that is no number, which every rule finds",
    "adaptive": "each checkpoint against its own past: outputs, their gradients and the gradients of parameters",
    "state": "bounds on the weights and on the optimizer's state",
    "ranks": "the ranks against one another",
    "checksum": "checks of matrix products, norms, and means of gradients over ranks",
}
"""The detector tiers by the names that `ASD_TIERS` accepts, and what each looks at."""
_MODES = {
    0: "off",
    1: "detect, report and act on first-level anomalies",
    2: "the same as 1",
    3: "the same as 1, and log every normal value at INFO",
}
_LARGEST_PORT = 65535
_LARGEST_EVIDENCE = 4096  # MiB
_MOST_STEPS = 10**9 - 1


SET_BY_RUN = ("ASD_DEVICES", "ASD_RESUME_FROM", "ASD_RESUME_STEP")
"""What `asd run --ranks` tells a training besides, which are no settings."""


class Variable(NamedTuple):
    """A setting.

    Attributes:
        name: The environment variable.
        field: Its field of `Config`.
        kind: How its text is read, and what is valid.
        meaning: What a value does.
        about: What the setting is for, as the documents say it.
        may_be_empty: Whether an empty text is a value too; else it counts as unset.
    """

    name: str
    field: str
    kind: Kind
    meaning: Callable[[Any], str]
    about: str
    may_be_empty: bool = False

    def value_of(self, text: str) -> Any:
        """The value that `text` says.

        Raises:
            ConfigError: It says none that is valid.
        """
        value = self.kind.parse(text)
        if not self.kind.accepts(value):
            raise ConfigError(self.name, text, self.kind.valid)
        return value


_MODE = Kind(
    lambda text: int(text) if text in {"0", "1", "2", "3"} else None,
    lambda value: type(value) is int and value in _MODES,
    "it must be 0 (off), 1 or 2 (detect and act) or 3 (the same, and log every value)",
)
_COMBINED = Kind(
    CombinedConfig.parse,
    lambda value: isinstance(value, CombinedConfig),
    "it must be key:value pairs, for example enable:true,with_checksum:true",
)
_PORT = count(_LARGEST_PORT, f"it must be a port from 1 to {_LARGEST_PORT}, or 0 to serve no metrics from this process")
_MEBIBYTES = count(_LARGEST_EVIDENCE, f"it must be a whole number of MiB from 0 to {_LARGEST_EVIDENCE}")
_INTERVAL = count(_MOST_STEPS, f"it must be a whole number of steps from 1 to {_MOST_STEPS}, or 0 for no comparison")


def _meaning_of_confirm(share: float) -> str:
    if not share:
        return "no step is made again before its update"
    return f"suspicious steps, at most five and {100 * share:.3g} % of all, are made again before their update"


def _meaning_of_combined(config: CombinedConfig) -> str:
    switches = ", a strike-out switches the checksum on" if config.enable and config.with_checksum else ""
    return f"gradients of parameters are {'sampled' if config.enable else 'not sampled'}{switches}"


VARIABLES = (
    Variable(
        "NPU_ASD_ENABLE", "enable", _MODE,
        _MODES.__getitem__,
        ("`0` off; `1` and `2` detect, report, and act on a first-level anomaly; `3` the same, and every "
            "normal value at INFO"),
    ),
    Variable(
        "NPU_ASD_UPPER_THRESH", "upper", pair(UPPER),
        lambda _: "first- and second-level threshold of a value itself",
        "first- and second-level threshold of a value; whole numbers from 3 on, the first above the second",
    ),
    Variable(
        "NPU_ASD_SIGMA_THRESH", "sigma", pair(SIGMA),
        lambda _: "first- and second-level threshold of its jump, in widths of the range seen so far",
        "first- and second-level threshold of a value's jump, in widths of the range seen so far",
    ),
    Variable(
        "ASD_ON_ANOMALY", "on_anomaly", choice(_ACTIONS),
        _ACTIONS.__getitem__,
        ("what a first-level anomaly does: `log` reports only, `skip` refuses the update and goes on, `stop` "
            "refuses it and ends training"),
    ),
    Variable(
        "ASD_PROTECTION", "protection", choice(PROTECTIONS),
        PROTECTIONS.__getitem__,
        ("`full` turns on all that never changes a number: the document's thresholds, learned ranges, state, "
            "checksums, the second look, replay and manifests; what other variables say goes before it. `document` "
            "is the document's rule and nothing else"),
    ),
    Variable(
        "ASD_RULE", "rule", choice(RULES),
        lambda name: RULES[name].about,
        f"which rule judges: {', '.join(f'`{name}`' for name in RULES)}",
    ),
    Variable(
        "ASD_RUN_DIR", "run_dir", FOLDER,
        lambda _: "where the run leaves its events, state and evidence",
        "where a run leaves its events, counts, state and evidence",
    ),
    Variable(
        "ASD_RUN", "run", NAME,
        lambda name: "the run's name in its events" if name else "the ranks find the run's name when it begins",
        ("the run's name in its events, the same on all ranks; where it is not set they agree on one made from the "
            "ids of Slurm, MindCluster or Kubernetes and the address of msrun's scheduler, else from folder, time and "
            "process"),
    ),
    Variable(
        "ASD_NODE", "node", NAME,
        lambda name: "the machine's name in events" if name else "the machine's name is its host name",
        ("the machine's name in events, where it is not its host name: in a container the name of the node, as the "
            "engine that takes devices out knows it"),
    ),
    Variable(
        "ASD_METRICS_PORT", "metrics_port", _PORT,
        lambda port: "this process serves its metrics there" if port else "this process serves no metrics",
        "serve this process' own metrics at this port; `0` for not",
    ),
    Variable(
        "ASD_METRICS_ADDRESS", "metrics_address", ADDRESS,
        lambda _: "address where this process serves its metrics",
        "serve this process' own metrics at this address",
    ),
    Variable(
        "ASD_WEB_CONFIG", "web_config", FILE,
        lambda name: (
            "file with TLS and passwords of the metrics" if name else "metrics are served without TLS and passwords"
        ),
        "a file with TLS and passwords for the metrics of this process",
    ),
    Variable(
        "ASD_EVIDENCE_MB", "evidence_mb", _MEBIBYTES,
        lambda size: "MiB of a bad tensor kept as evidence" if size else "no tensor is kept as evidence",
        ("how much of a bad tensor is kept as evidence, in MiB; a window around the worst element when the "
            "tensor is larger"),
    ),
    Variable(
        "ASD_REPLAY", "replay", FLAG,
        lambda on: f"{'a refused' if on else 'no'} step is made again, to tell hardware from software",
        "`1` makes a step whose update was refused again, to tell hardware from software",
    ),
    Variable(
        "ASD_CONFIRM", "confirm", SHARE,
        _meaning_of_confirm,
        ("share of the steps, for example `0.01`, that may be made again before their update because of an "
            "anomaly of either level; what a device did once is healed bit for bit"),
    ),
    Variable(
        "ASD_BUDGET", "budget", SHARE_OF_TIME,
        lambda share: f"detection may take {100 * share:.3g} % of a step; what can look at less shares what is left",
        ("share of the time of a step that detection may take: what looks at every place comes first, then weights and "
            "moments, then sampled checks of results; each does its least in any case"),
    ),
    Variable(
        "ASD_MANIFEST", "manifest", FLAG,
        lambda on: f"{'each' if on else 'no'} checkpoint file gets a manifest with its hash",
        ("`1` writes a manifest with a hash beside every checkpoint file, so that a resume can pick the last "
            "good one"),
    ),
    Variable(
        "ASD_RECORD", "record", FLAG,
        lambda on: f"feature values are {'' if on else 'not '}recorded for `asd tune`",
        "`1` records the feature values of every step for `asd tune`",
    ),
    Variable(
        "ASD_DEVICE", "device", DIGITS,
        lambda number: "the device's number in events" if number else "the device's number is MindSpore's",
        "the number of this process' device in events, where it is not MindSpore's",
    ),
    Variable(
        "ASD_WEIGHT_HASH", "weight_hash", _INTERVAL,
        lambda steps: (
            "the fewest steps between two comparisons of the weights over data-parallel ranks"
            if steps
            else "weights are not compared over ranks"
        ),
        ("the fewest steps between two comparisons of the weights over data-parallel ranks, which also follow each "
            "checkpoint; there are fewer where one takes long; `0` for none"),
    ),
    Variable(
        "ASD_TIERS", "tiers", names(TIERS),
        lambda tiers: "; ".join(TIERS[name] for name in tiers) if tiers else "no detector tier is on",
        ("which detector tiers are on, `finite,adaptive,state,ranks,checksum` or some of them, empty for "
            "none; with `adaptive` the first three are, else none"),
        may_be_empty=True,
    ),
    Variable(
        VARIABLE, "combined", _COMBINED,
        _meaning_of_combined,
        ("the vendor's combined scheme, such as `enable:true,with_checksum:true`: sampled gradients, "
            "strikes, and the checksum they switch on"),
    ),
)  # fmt: skip
