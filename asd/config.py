"""The settings, and the only reader of the environment.

One table says everything about a setting: its variable, how its text is read, what is valid and what a value means.
The reader, the checks and `asd env` follow from it. The two thresholds take what every vendor release takes the same
way; what a vendor would replace by the default in silence is an error here, because a mistyped threshold must not pass
unnoticed.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from asd.combined_config import VARIABLE, CombinedConfig
from asd.errors import ConfigError

__all__ = ["TIERS", "Config", "Setting", "describe", "rolls_back"]

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
    "finite": "a tensor with an element that is no number",
    "adaptive": "each checkpoint against its own past: outputs, their gradients and the gradients of parameters",
    "state": "bounds on the weights and on the optimizer's state",
    "ranks": "the ranks against one another",
    "checksum": "checksums of matrix products",
}
"""The detector tiers by the names that `ASD_TIERS` accepts, and what each looks at."""
_DEFAULT_TIERS = ("finite", "adaptive", "state")
_MODES = {
    0: "off",
    1: "detect, report and act on first-level anomalies",
    2: "the same as 1",
    3: "the same as 1, and log every normal value at INFO",
}
_SMALLEST, _LARGEST = 3, 2**63 - 1
_LONGEST_NAME = 128
_LARGEST_PORT = 65535
_LARGEST_EVIDENCE = 4096  # MiB
_MOST_STEPS = 10**9 - 1
_PAIR = re.compile(r"\s*([0-9]+)\s*,\s*([0-9]+)\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Config:
    """What to check, how to judge and what to do; checked when it is made.

    Attributes:
        enable: 0 off; 1 and 2 detect, report and act; 3 logs every normal value as well.
        upper: First- and second-level threshold of a value itself.
        sigma: First- and second-level threshold of its jump, in widths of the range seen so far.
        on_anomaly: What a first-level anomaly does: `log`, `skip` or `stop`.
        rule: Which rule judges: `threshold`, `silent_check_v3`, `combined` or `adaptive`.
        run_dir: Folder where the run leaves its events, state and evidence.
        run: Name of the run in its events, the same on all ranks; empty for one made from folder, time and process.
        metrics_port: Port, 1..65535, where this process serves its metrics; 0 for nowhere.
        metrics_address: Address where it serves them.
        web_config: File with TLS and passwords of that endpoint; empty for neither.
        evidence_mb: How much of a bad tensor is kept as evidence, 0..4096 MiB.
        replay: Whether a step whose update was refused is made again, to tell hardware from software.
        narrow: Whether a replay whose fault comes back is searched for the first wrong operator.
        manifest: Whether each checkpoint file gets a manifest with its hash and the health of the steps before it.
        combined: The vendor's combined scheme: sampled gradients, strikes and the checksum they switch on.
        device: Number of the device this process computes on, for example `3`; empty for what MindSpore says.
        weight_hash: Steps between two comparisons of the weights over data-parallel ranks; 0 for none.
        tiers: Names of the detector tiers that are on, see `TIERS`; empty for none, None for those of the rule.
        record: Whether the feature values of every step are recorded, which `asd tune` reads.

    >>> Config.from_env({"NPU_ASD_ENABLE": "1", "NPU_ASD_UPPER_THRESH": "100, 50"}).upper
    (100, 50)
    """

    enable: int = 0
    upper: tuple[int, int] = (1_000_000, 10_000)
    sigma: tuple[int, int] = (100_000, 5_000)
    on_anomaly: str = "stop"
    rule: str = "threshold"
    run_dir: str = "asd_run"
    run: str = ""
    metrics_port: int = 0
    metrics_address: str = "127.0.0.1"
    web_config: str = ""
    evidence_mb: int = 16
    replay: bool = False
    narrow: bool = False
    manifest: bool = False
    device: str = ""
    weight_hash: int = 50
    tiers: tuple[str, ...] | None = None
    combined: CombinedConfig = field(default_factory=CombinedConfig)
    record: bool = False

    def __post_init__(self) -> None:
        for variable in _VARIABLES:
            value = getattr(self, variable.field)
            if not variable.accepts(value):
                raise ConfigError(variable.field, value, variable.valid)
        tiers = self.active_tiers
        if "adaptive" in tiers and self.rule != "adaptive":
            raise ConfigError("ASD_TIERS", ",".join(tiers), "tier adaptive needs ASD_RULE=adaptive")
        if self.rule != "adaptive" and "finite" in tiers:
            raise ConfigError("ASD_TIERS", ",".join(tiers), f"rule {self.rule} does what tier finite does itself")

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Config:
        """Reads the settings from `environ`; an empty variable counts as unset, but for `ASD_TIERS`, where it is none.

        Raises:
            ConfigError: A variable has a value that is not valid; the sentence lists what is.
        """
        given = {}
        for variable in _VARIABLES:
            text = environ.get(variable.name)
            if text or (text == "" and variable.may_be_empty):
                given[variable.field] = variable.value_of(text)
        return cls(**given)

    @classmethod
    def of_process(cls, **defaults: str) -> Config:
        """The settings of this process, from its environment.

        Args:
            **defaults: Variables to take where the environment has none of that name.

        Raises:
            ConfigError: As `from_env`.
        """
        return cls.from_env({**defaults, **os.environ})

    def name_of_run(self) -> str:
        """`run`, or a new name made from the folder, the time and the number of this process."""
        return self.run or f"{Path(self.run_dir).name}-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}"

    @property
    def enabled(self) -> bool:
        """Whether anything is checked."""
        return self.enable > 0

    @property
    def log_values(self) -> bool:
        """Whether every normal value is logged at INFO."""
        return self.enable == 3

    @property
    def active_tiers(self) -> tuple[str, ...]:
        """The tiers that are on: `tiers`, or what the rule brings; only `adaptive` brings any."""
        if self.tiers is not None:
            return self.tiers
        return _DEFAULT_TIERS if self.rule == "adaptive" else ()

    @property
    def refuses(self) -> bool:
        """Whether an update with a first-level anomaly is kept away from the weights."""
        return self.on_anomaly != "log"


def rolls_back(environ: Mapping[str, str] | None = None) -> bool:
    """Whether MindSpore's own roll-back of a training is switched on: `MS_ENABLE_TFT` with `TRE:1` or `TRE:2`.

    Args:
        environ: Of this process if not given.
    """
    switches = (os.environ if environ is None else environ).get("MS_ENABLE_TFT", "")
    return "TRE:1" in switches or "TRE:2" in switches


class Setting(NamedTuple):
    """One setting as it is in force, for people.

    Attributes:
        name: The environment variable.
        value: The value in force, as the variable would spell it.
        source: `environment` or `default`.
        meaning: What that value does.
    """

    name: str
    value: str
    source: str
    meaning: str


def describe(environ: Mapping[str, str]) -> list[Setting]:
    """The settings that `environ` gives, each with where it comes from and what it does.

    Raises:
        ConfigError: As `Config.from_env`.
    """
    config = Config.from_env(environ)
    return [variable.describe(config, environ) for variable in _VARIABLES]


class _Variable(NamedTuple):
    """A setting: its variable, its field of `Config`, and the rules for its value."""

    name: str
    field: str
    parse: Callable[[str], Any]  # None for text that says no value at all
    accepts: Callable[[Any], bool]
    valid: str
    meaning: Callable[[Any], str]
    may_be_empty: bool = False

    def value_of(self, text: str) -> Any:
        value = self.parse(text)
        if not self.accepts(value):
            raise ConfigError(self.name, text, self.valid)
        return value

    def describe(self, config: Config, environ: Mapping[str, str]) -> Setting:
        value = config.active_tiers if self.field == "tiers" else getattr(config, self.field)
        text = _spell(value)
        given = environ.get(self.name)
        is_set = bool(given) or (given == "" and self.may_be_empty)
        note = " (set, but empty: counts as unset)" if given == "" and not is_set else ""
        return Setting(self.name, text, "environment" if is_set else "default", self.meaning(value) + note)


def _spell(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(int(value)) if isinstance(value, bool) else str(value)


def _parse_flag(text: str) -> bool | None:
    return {"0": False, "1": True}.get(text)


def _parse_mode(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]", text, re.ASCII) else None


def _parse_pair(text: str) -> tuple[int, int] | None:
    match = _PAIR.fullmatch(text)
    if match is None:
        return None
    first, second = (digits.lstrip("0") or "0" for digits in match.groups())
    if max(len(first), len(second)) > len(str(_LARGEST)):  # int() refuses texts of thousands of digits
        return None
    return int(first), int(second)


def _parse_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",")) if text else ()


def _parse_count(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,9}", text, re.ASCII) else None


def _is_mode(value: object) -> bool:
    return type(value) is int and value in _MODES


def _is_pair(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and [type(number) for number in value] == [int, int]
        and _LARGEST >= value[0] > value[1] >= _SMALLEST
    )


def _is_tiers(value: object) -> bool:
    return value is None or (isinstance(value, tuple) and len(set(value)) == len(value) and set(value) <= set(TIERS))


def _is_folder(value: object) -> bool:
    return isinstance(value, str) and value != "" and "\0" not in value


def _is_file(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _is_address(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[^\s\0/]+", value) is not None


def _up_to(largest: int) -> Callable[[object], bool]:
    return lambda value: type(value) is int and 0 <= value <= largest


def _is_name(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_NAME and (value == "" or value.isprintable())


def _one_of(names: Mapping[str, str]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and value in names


_PAIR_VALID = (
    f"it must be two whole numbers, first,second, each from {_SMALLEST} to {_LARGEST} and the first larger than the "
    "second, for example "
)

_VARIABLES = (
    _Variable(
        name="NPU_ASD_ENABLE",
        field="enable",
        parse=_parse_mode,
        accepts=_is_mode,
        valid="it must be 0 (off), 1 or 2 (detect and act) or 3 (the same, and log every value)",
        meaning=_MODES.__getitem__,
    ),
    _Variable(
        name="NPU_ASD_UPPER_THRESH",
        field="upper",
        parse=_parse_pair,
        accepts=_is_pair,
        valid=_PAIR_VALID + "1000000,10000",
        meaning=lambda _: "first- and second-level threshold of a value itself",
    ),
    _Variable(
        name="NPU_ASD_SIGMA_THRESH",
        field="sigma",
        parse=_parse_pair,
        accepts=_is_pair,
        valid=_PAIR_VALID + "100000,5000",
        meaning=lambda _: "first- and second-level threshold of its jump, in widths of the range seen so far",
    ),
    _Variable(
        name="ASD_ON_ANOMALY",
        field="on_anomaly",
        parse=str,
        accepts=_one_of(_ACTIONS),
        valid=f"it must be one of {', '.join(_ACTIONS)}",
        meaning=_ACTIONS.__getitem__,
    ),
    _Variable(
        name="ASD_RULE",
        field="rule",
        parse=str,
        accepts=_one_of(_RULES),
        valid=f"it must be one of {', '.join(_RULES)}",
        meaning=_RULES.__getitem__,
    ),
    _Variable(
        name="ASD_RUN_DIR",
        field="run_dir",
        parse=str,
        accepts=_is_folder,
        valid="it must be the name of a folder, not empty and without a NUL character",
        meaning=lambda _: "where the run leaves its events, state and evidence",
    ),
    _Variable(
        name="ASD_RUN",
        field="run",
        parse=str,
        accepts=_is_name,
        valid=f"it must be a name of at most {_LONGEST_NAME} printable characters",
        meaning=lambda name: "the run's name in its events" if name else "the run's name is made when it begins",
    ),
    _Variable(
        name="ASD_METRICS_PORT",
        field="metrics_port",
        parse=_parse_count,
        accepts=_up_to(_LARGEST_PORT),
        valid=f"it must be a port from 1 to {_LARGEST_PORT}, or 0 to serve no metrics from this process",
        meaning=lambda port: "this process serves its metrics there" if port else "this process serves no metrics",
    ),
    _Variable(
        name="ASD_METRICS_ADDRESS",
        field="metrics_address",
        parse=str,
        accepts=_is_address,
        valid="it must be an address or host name of this machine, for example 127.0.0.1, or 0.0.0.0 for all",
        meaning=lambda _: "address where this process serves its metrics",
    ),
    _Variable(
        name="ASD_WEB_CONFIG",
        field="web_config",
        parse=str,
        accepts=_is_file,
        valid="it must be the name of a file, without a NUL character",
        meaning=lambda name: (
            "file with TLS and passwords of the metrics" if name else "metrics are served without TLS and passwords"
        ),
    ),
    _Variable(
        name="ASD_EVIDENCE_MB",
        field="evidence_mb",
        parse=_parse_count,
        accepts=_up_to(_LARGEST_EVIDENCE),
        valid=f"it must be a whole number of MiB from 0 to {_LARGEST_EVIDENCE}",
        meaning=lambda size: "MiB of a bad tensor kept as evidence" if size else "no tensor is kept as evidence",
    ),
    _Variable(
        name="ASD_REPLAY",
        field="replay",
        parse=_parse_flag,
        accepts=lambda value: isinstance(value, bool),
        valid="it must be 0 or 1",
        meaning=lambda on: f"{'a refused' if on else 'no'} step is made again, to tell hardware from software",
    ),
    _Variable(
        name="ASD_NARROW",
        field="narrow",
        parse=_parse_flag,
        accepts=lambda value: isinstance(value, bool),
        valid="it must be 0 or 1",
        meaning=lambda on: f"a replay is {'' if on else 'not '}searched for the first wrong operator",
    ),
    _Variable(
        name="ASD_MANIFEST",
        field="manifest",
        parse=_parse_flag,
        accepts=lambda value: isinstance(value, bool),
        valid="it must be 0 or 1",
        meaning=lambda on: f"{'each' if on else 'no'} checkpoint file gets a manifest with its hash",
    ),
    _Variable(
        name="ASD_RECORD",
        field="record",
        parse=_parse_flag,
        accepts=lambda value: isinstance(value, bool),
        valid="it must be 0 or 1",
        meaning=lambda on: f"feature values are {'' if on else 'not '}recorded for `asd tune`",
    ),
    _Variable(
        name="ASD_DEVICE",
        field="device",
        parse=str,
        accepts=lambda value: isinstance(value, str) and re.fullmatch("[0-9]{0,5}", value, re.ASCII) is not None,
        valid="it must be the number of a device, for example 3",
        meaning=lambda number: "the device's number in events" if number else "the device's number is MindSpore's",
    ),
    _Variable(
        name="ASD_WEIGHT_HASH",
        field="weight_hash",
        parse=_parse_count,
        accepts=_up_to(_MOST_STEPS),
        valid=f"it must be a whole number of steps from 1 to {_MOST_STEPS}, or 0 for no comparison",
        meaning=lambda steps: (
            "steps between two comparisons of the weights over data-parallel ranks"
            if steps
            else "weights are not compared over ranks"
        ),
    ),
    _Variable(
        name="ASD_TIERS",
        field="tiers",
        parse=_parse_names,
        accepts=_is_tiers,
        valid=f"it must be some of {', '.join(TIERS)}, each once and with commas between them, or empty for none",
        meaning=lambda names: "; ".join(TIERS[name] for name in names) if names else "no detector tier is on",
        may_be_empty=True,
    ),
    _Variable(
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
