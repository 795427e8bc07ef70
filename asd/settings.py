"""The table of settings: one row says everything about each.

Its variable, its field of `Config`, how its text is read, what is valid and what a value means. The reader, the checks
and `asd env` follow from it. The two thresholds take what every vendor release takes the same way; what a vendor would
replace by the default in silence is an error here, because a mistyped threshold must not pass unnoticed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from asd.combined_config import VARIABLE, CombinedConfig
from asd.errors import ConfigError
from asd.setting_values import (
    LARGEST,
    LONGEST_NAME,
    SMALLEST,
    is_address,
    is_file,
    is_folder,
    is_name,
    is_pair,
    one_of,
    parse_count,
    parse_flag,
    parse_mode,
    parse_names,
    parse_pair,
    parse_share,
    up_to,
)

__all__ = ["SET_BY_RUN", "TIERS", "VARIABLES", "Variable"]

_ACTIONS = {
    "log": "report a first-level anomaly and go on",
    "skip": "refuse the update of a first-level anomaly and go on",
    "stop": "refuse the update of a first-level anomaly and end training",
}
_RULES = {
    "threshold": "judge by two absolute and two jump thresholds on the L2 norm",
    "silent_check_v3": "judge the largest square against its bias-corrected mean",
    "combined": "judge by an absolute threshold and a multiple of the running mean together",
    "adaptive": "learn the healthy range of each checkpoint and judge by it",
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
        parse: Its value from a text; None for a text that says no value at all.
        accepts: Whether a value is valid.
        valid: What is, for a sentence about a value that is not.
        meaning: What a value does.
        may_be_empty: Whether an empty text is a value too; else it counts as unset.
    """

    name: str
    field: str
    parse: Callable[[str], Any]
    accepts: Callable[[Any], bool]
    valid: str
    meaning: Callable[[Any], str]
    may_be_empty: bool = False

    def value_of(self, text: str) -> Any:
        """The value that `text` says.

        Raises:
            ConfigError: It says none that is valid.
        """
        value = self.parse(text)
        if not self.accepts(value):
            raise ConfigError(self.name, text, self.valid)
        return value


def _is_mode(value: object) -> bool:
    return type(value) is int and value in _MODES


def _is_tiers(value: object) -> bool:
    return value is None or (isinstance(value, tuple) and len(set(value)) == len(value) and set(value) <= set(TIERS))


_PAIR_VALID = (
    f"it must be two whole numbers, first,second, each from {SMALLEST} to {LARGEST} and the first larger than the "
    "second, for example "
)

VARIABLES = (
    Variable(
        name="NPU_ASD_ENABLE",
        field="enable",
        parse=parse_mode,
        accepts=_is_mode,
        valid="it must be 0 (off), 1 or 2 (detect and act) or 3 (the same, and log every value)",
        meaning=_MODES.__getitem__,
    ),
    Variable(
        name="NPU_ASD_UPPER_THRESH",
        field="upper",
        parse=parse_pair,
        accepts=is_pair,
        valid=_PAIR_VALID + "1000000,10000",
        meaning=lambda _: "first- and second-level threshold of a value itself",
    ),
    Variable(
        name="NPU_ASD_SIGMA_THRESH",
        field="sigma",
        parse=parse_pair,
        accepts=is_pair,
        valid=_PAIR_VALID + "100000,5000",
        meaning=lambda _: "first- and second-level threshold of its jump, in widths of the range seen so far",
    ),
    Variable(
        name="ASD_ON_ANOMALY",
        field="on_anomaly",
        parse=str,
        accepts=one_of(_ACTIONS),
        valid=f"it must be one of {', '.join(_ACTIONS)}",
        meaning=_ACTIONS.__getitem__,
    ),
    Variable(
        name="ASD_RULE",
        field="rule",
        parse=str,
        accepts=one_of(_RULES),
        valid=f"it must be one of {', '.join(_RULES)}",
        meaning=_RULES.__getitem__,
    ),
    Variable(
        name="ASD_RUN_DIR",
        field="run_dir",
        parse=str,
        accepts=is_folder,
        valid="it must be the name of a folder, not empty and without a NUL character",
        meaning=lambda _: "where the run leaves its events, state and evidence",
    ),
    Variable(
        name="ASD_RUN",
        field="run",
        parse=str,
        accepts=is_name,
        valid=f"it must be a name of at most {LONGEST_NAME} printable characters",
        meaning=lambda name: "the run's name in its events" if name else "the run's name is made when it begins",
    ),
    Variable(
        name="ASD_METRICS_PORT",
        field="metrics_port",
        parse=parse_count,
        accepts=up_to(_LARGEST_PORT),
        valid=f"it must be a port from 1 to {_LARGEST_PORT}, or 0 to serve no metrics from this process",
        meaning=lambda port: "this process serves its metrics there" if port else "this process serves no metrics",
    ),
    Variable(
        name="ASD_METRICS_ADDRESS",
        field="metrics_address",
        parse=str,
        accepts=is_address,
        valid="it must be an address or host name of this machine, for example 127.0.0.1, or 0.0.0.0 for all",
        meaning=lambda _: "address where this process serves its metrics",
    ),
    Variable(
        name="ASD_WEB_CONFIG",
        field="web_config",
        parse=str,
        accepts=is_file,
        valid="it must be the name of a file, without a NUL character",
        meaning=lambda name: (
            "file with TLS and passwords of the metrics" if name else "metrics are served without TLS and passwords"
        ),
    ),
    Variable(
        name="ASD_EVIDENCE_MB",
        field="evidence_mb",
        parse=parse_count,
        accepts=up_to(_LARGEST_EVIDENCE),
        valid=f"it must be a whole number of MiB from 0 to {_LARGEST_EVIDENCE}",
        meaning=lambda size: "MiB of a bad tensor kept as evidence" if size else "no tensor is kept as evidence",
    ),
    Variable(
        name="ASD_REPLAY",
        field="replay",
        parse=parse_flag,
        accepts=lambda value: isinstance(value, bool),
        valid="it must be 0 or 1",
        meaning=lambda on: f"{'a refused' if on else 'no'} step is made again, to tell hardware from software",
    ),
    Variable(
        name="ASD_NARROW",
        field="narrow",
        parse=parse_flag,
        accepts=lambda value: isinstance(value, bool),
        valid="it must be 0 or 1",
        meaning=lambda on: f"a replay is {'' if on else 'not '}searched for the first wrong operator",
    ),
    Variable(
        name="ASD_CONFIRM",
        field="confirm",
        parse=parse_share,
        accepts=lambda value: isinstance(value, float | int) and 0 <= value <= 1,
        valid="it must be a share of the steps from 0, for never, to 1, for example 0.01",
        meaning=lambda share: (
            f"suspicious steps, at most five and {100 * share:.3g} % of all, are made again before their update"
            if share
            else "no step is made again before its update"
        ),
    ),
    Variable(
        name="ASD_MANIFEST",
        field="manifest",
        parse=parse_flag,
        accepts=lambda value: isinstance(value, bool),
        valid="it must be 0 or 1",
        meaning=lambda on: f"{'each' if on else 'no'} checkpoint file gets a manifest with its hash",
    ),
    Variable(
        name="ASD_RECORD",
        field="record",
        parse=parse_flag,
        accepts=lambda value: isinstance(value, bool),
        valid="it must be 0 or 1",
        meaning=lambda on: f"feature values are {'' if on else 'not '}recorded for `asd tune`",
    ),
    Variable(
        name="ASD_DEVICE",
        field="device",
        parse=str,
        accepts=lambda value: isinstance(value, str) and re.fullmatch("[0-9]{0,5}", value, re.ASCII) is not None,
        valid="it must be the number of a device, for example 3",
        meaning=lambda number: "the device's number in events" if number else "the device's number is MindSpore's",
    ),
    Variable(
        name="ASD_WEIGHT_HASH",
        field="weight_hash",
        parse=parse_count,
        accepts=up_to(_MOST_STEPS),
        valid=f"it must be a whole number of steps from 1 to {_MOST_STEPS}, or 0 for no comparison",
        meaning=lambda steps: (
            "steps between two comparisons of the weights over data-parallel ranks"
            if steps
            else "weights are not compared over ranks"
        ),
    ),
    Variable(
        name="ASD_TIERS",
        field="tiers",
        parse=parse_names,
        accepts=_is_tiers,
        valid=f"it must be some of {', '.join(TIERS)}, each once and with commas between them, or empty for none",
        meaning=lambda names: "; ".join(TIERS[name] for name in names) if names else "no detector tier is on",
        may_be_empty=True,
    ),
    Variable(
        name=VARIABLE,
        field="combined",
        parse=CombinedConfig.parse,
        accepts=lambda value: isinstance(value, CombinedConfig),
        valid="it must be key:value pairs, for example enable:true,with_checksum:true",
        meaning=lambda config: (
            f"gradients of parameters are {'sampled' if config.enable else 'not sampled'}"
            + (", a strike-out switches the checksum on" if config.enable and config.with_checksum else "")
        ),
    ),
)
