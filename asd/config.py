"""The settings, and the only reader of the environment."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, NamedTuple

from asd.errors import ConfigError
from asd.rules.base import SIGMA, UPPER
from asd.settings.job_name import attempt_of, job_name
from asd.settings.options import ASD_OPTIONS, OPTIONS, option_values
from asd.settings.table import FORMER, SET_BY_RUN, VARIABLES, brought_by
from asd.settings.values import Variable

_BY_PROTECTION: Any = None
# Kubernetes sets the others in each pod, for a Service such as `asd-handler`.
_OURS = re.compile(r"(NPU_)?ASD_(?!.*(SERVICE_HOST|SERVICE_PORT|PORT)(_|$))")
_VERSION = re.compile(r"version=\[?([^\]\n]{1,64})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of checks, rules and actions; validated when it is made.

    Attributes:
        enable: 0 off; 1 and 2 detect, report and act; 3 logs every normal value as well.
        upper: First- and second-level threshold of a value itself.
        sigma: First- and second-level threshold of its jump, in widths of the range seen so far.
        on_anomaly: Effect of a first-level anomaly: `log`, `skip` or `stop`.
        protection: Defaults of the settings that are not given: `full` switches on all that never changes a number,
            `document` the document's rule alone.
        rule: Name of the rule that judges, from `asd.rules.RULES`; by default `adaptive`, with `document` `threshold`.
        run_dir: Folder for the run's events, state and evidence.
        run: Name of the run in its events, the same on all ranks; if empty, the ranks find one.
        replay: Whether a step whose update was refused is re-run, to distinguish hardware from software.
        manifest: Whether each checkpoint file gets a manifest with its hash and the health of the steps before it.
        device: Number of the device this process computes on, for example `3`; if empty, that of MindSpore.
        weight_hash: Steps between two comparisons of the weights over data-parallel ranks; 0 for none.
        detectors: Names of the detectors that are on; empty for none, None for those that `protection` switches on.
        record: Whether the feature values of every step are recorded for `asd tune`.
        confirm: Share of the steps, 0..1, that may be re-run before their update, for an anomaly of either level.
        node: Name of this machine in its events; empty for its host name.

    >>> Config.from_env({"NPU_ASD_ENABLE": "1", "NPU_ASD_UPPER_THRESH": "100, 50"}).upper
    (100, 50)
    """

    enable: int = 0
    upper: tuple[int, int] = UPPER
    sigma: tuple[int, int] = SIGMA
    on_anomaly: str = "stop"
    rule: str = _BY_PROTECTION
    run_dir: str = "asd_run"
    run: str = ""
    replay: bool = _BY_PROTECTION
    manifest: bool = _BY_PROTECTION
    device: str = ""
    weight_hash: int = _BY_PROTECTION
    detectors: tuple[str, ...] | None = None
    record: bool = False
    confirm: float = _BY_PROTECTION
    node: str = ""
    protection: str = "full"

    def __post_init__(self) -> None:
        given = {each.name: value for each in fields(self) if (value := getattr(self, each.name)) is not None}
        for name, value in brought_by(self.protection, given).items():
            object.__setattr__(self, name, value)
        for setting in (*VARIABLES, *OPTIONS):
            value = getattr(self, setting.field)
            if not setting.format.accepts(value):
                raise ConfigError(setting.field, value, setting.format.valid)
        if self.confirm and self.rule != "adaptive":
            raise ConfigError("ASD_OPTIONS: confirm", self.confirm, "only ASD_RULE=adaptive suspects a gradient")
        if self.confirm and not self.refuses:
            raise ConfigError(
                "ASD_OPTIONS: confirm", self.confirm, "it needs updates that can be refused: ASD_ON_ANOMALY=skip, stop"
            )

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Config:
        """Reads the settings from `environ`; an empty variable counts as unset.

        Raises:
            ConfigError: A variable has a value that is not valid; the sentence lists what is.
        """
        return cls(**_given_by(environ))

    @classmethod
    def of_process(cls, **defaults: str) -> Config:
        """Returns the settings of this process, from its environment.

        Args:
            **defaults: Variables to take where the environment has none of that name, or an empty one.

        Raises:
            ConfigError: As `from_env`.
        """
        return cls.from_env({**os.environ, **{name: os.environ.get(name) or text for name, text in defaults.items()}})

    def name_of_run(self) -> str:
        """Returns `run`, the name of the job, or a new name made from folder, time and number of this process."""
        job, attempt = job_name(os.environ, self.name_of_node()), attempt_of(os.environ)
        if self.run or not job:
            return self.run or f"{Path(self.run_dir).name}-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}"
        return job if attempt == 1 else f"{job}+{attempt}"

    def name_of_launch(self) -> str:
        """Returns the name of the run, never the same for two launches of a job, whose steps begin at 1 again."""
        job = "" if self.run else job_name(os.environ, self.name_of_node())
        return f"{job}+{time.strftime('%Y%m%d%H%M%S', time.gmtime())}" if job else self.name_of_run()

    def name_of_node(self) -> str:
        """Returns `node`, or the host name of this machine."""
        return self.node or socket.gethostname()

    @property
    def enabled(self) -> bool:
        """True where anything is checked."""
        return self.enable > 0

    @property
    def log_values(self) -> bool:
        """True where every normal value is logged at INFO."""
        return self.enable == 3

    @property
    def active_detectors(self) -> tuple[str, ...]:
        """The detectors that are on: `detectors`, or what the rule brings; only `adaptive` brings any."""
        return self.detectors if self.detectors is not None else ("state",) if self.rule == "adaptive" else ()

    @property
    def refuses(self) -> bool:
        """True where an update with a first-level anomaly is kept away from the weights."""
        return self.on_anomaly != "log"


def rolls_back() -> bool:
    """Returns whether MindSpore's own roll-back of a training is on: `MS_ENABLE_TFT` with `TRE:1` or `TRE:2`."""
    switches = os.environ.get("MS_ENABLE_TFT", "")
    return "TRE:1" in switches or "TRE:2" in switches


def is_simulated() -> bool:
    """Returns whether MindSpore simulates one rank of many, so that no other rank can be reached."""
    return bool(os.environ.get("MS_SIMULATION_LEVEL"))


def visible_devices() -> list[int]:
    """Returns the devices that `ASCEND_RT_VISIBLE_DEVICES` shows, ascending as CANN counts; empty for all."""
    words = os.environ.get("ASCEND_RT_VISIBLE_DEVICES", "").split(",")
    return sorted(int(word) for word in words if word.strip().isdecimal())


def unknown_variables() -> dict[str, str]:
    """Returns variables that look like ours and are not read, each with its replacement or the nearest that is read."""
    known = [*(variable.name for variable in VARIABLES), ASD_OPTIONS]
    options = {f"ASD_{option.name.upper()}": option.name for option in OPTIONS}
    former = FORMER | {old: f"{ASD_OPTIONS}={options[old]}:{os.environ[old]}" for old in options if old in os.environ}
    ours = [name for name in os.environ if _OURS.match(name) or name in former]
    unknown = sorted(set(ours) - {*known, *SET_BY_RUN})
    nearest = {name: max(known, key=lambda each: SequenceMatcher(None, name, each).ratio()) for name in unknown}
    return {name: former.get(name, nearest[name]) for name in unknown}


class Setting(NamedTuple):
    """One setting as it is in force, for people."""

    name: str  # the environment variable, for an option `ASD_OPTIONS:` and its name
    value: str  # the value in force, as it is written there
    source: str  # `environment`, `ASD_PROTECTION` or `default`
    meaning: str  # what the setting is for


def describe(environ: Mapping[str, str]) -> list[Setting]:
    """Returns the settings that `environ` gives, each with where it comes from and what it does."""
    given = _given_by(environ)
    config = Config(**given)
    empty = {variable.name for variable in VARIABLES if environ.get(variable.name) == ""}
    return [
        *(_in_force(variable, variable.name, config, given, is_empty=variable.name in empty) for variable in VARIABLES),
        *(_in_force(option, f"{ASD_OPTIONS}:{option.name}", config, given) for option in OPTIONS),
    ]


def _given_by(environ: Mapping[str, str]) -> dict[str, Any]:
    texts = {variable: environ.get(variable.name) for variable in VARIABLES}
    return {
        **{variable.field: variable.value_of(text) for variable, text in texts.items() if text},
        **option_values(environ),
    }


def _in_force(
    setting: Variable, name: str, config: Config, given: Mapping[str, Any], *, is_empty: bool = False
) -> Setting:
    value = config.active_detectors if setting.field == "detectors" else getattr(config, setting.field)
    is_brought = "protection" in given and setting.field in brought_by(config.protection, given)
    source = "environment" if setting.field in given else "ASD_PROTECTION" if is_brought else "default"
    note = " (set, but empty: counts as unset)" if is_empty else ""
    return Setting(name, _spell(value), source, setting.about + note)


def _spell(value: object) -> str:
    if isinstance(value, tuple):
        return ("+" if all(isinstance(each, str) for each in value) else ",").join(map(str, value))
    if isinstance(value, float):
        return f"{value:g}"
    return str(int(value)) if isinstance(value, bool) else str(value)


def version_in(*files: Path) -> str:
    """Returns the version in the first of Ascend's version files that has one; empty without one."""
    for file in files:
        with contextlib.suppress(OSError):
            if match := _VERSION.search(file.read_text(encoding="utf-8", errors="replace")[: 1 << 16]):
                return match[1].strip()
    return ""


def cann_version() -> str:
    """Returns the version of CANN that this process uses; empty where none is installed."""
    homes = set_variables("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
    home = Path(next(iter(homes.values()), "/usr/local/Ascend/latest"))
    return version_in(home / "version.cfg", home / "version.info", home / "compiler/version.info")


def set_variables(*names: str) -> dict[str, str]:
    """Returns those of `names` that are set and not empty: variables of other programs that choose kernels."""
    return {name: os.environ[name] for name in names if os.environ.get(name)}
