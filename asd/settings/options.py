"""`ASD_OPTIONS`: settings for experts, as `name:value` pairs with commas between them."""

from collections.abc import Mapping
from typing import Any

from asd.errors import ConfigError
from asd.settings.values import FLAG, SHARE, Variable, count, names

ASD_OPTIONS = "ASD_OPTIONS"
DETECTORS = ("state", "checksum")
_FORMER = {"tiers": "detectors"}  # names of options before version 1.0, each with the one of today
_MOST_STEPS = 10**9 - 1


OPTIONS = (
    Variable(
        "detectors",
        "detectors",
        names(DETECTORS),
        "detectors that are on beside the rule, `state+checksum` or one of them, empty for none; default: both "
        "with `ASD_PROTECTION=full` and rule `adaptive`, `state` with `document` and rule `adaptive`, else none",
    ),
    Variable(
        "confirm",
        "confirm",
        SHARE,
        "share of the steps, for example `0.01`, that may be re-run before their update, to confirm an anomaly; a "
        "transient fault is healed bit for bit; default `0` unless `full`, rule `adaptive` and not `log`",
    ),
    Variable(
        "replay",
        "replay",
        FLAG,
        "`1` re-runs a step whose update was refused, to distinguish hardware from software; "
        "default `0` with `document` or `log`",
    ),
    Variable(
        "weight_hash",
        "weight_hash",
        count(_MOST_STEPS, f"it must be a whole number of steps from 1 to {_MOST_STEPS}, or 0 for no comparison"),
        "steps between two comparisons of weights within a replica group; `0` for none; default `0` with `document`",
    ),
    Variable(
        "manifest",
        "manifest",
        FLAG,
        "`1` writes a manifest beside each file of a `ModelCheckpoint`; for others call "
        "`StepMonitor.save_manifest`; default `0` with `document`",
    ),
    Variable("record", "record", FLAG, "`1` records the feature values of every step for `asd tune`"),
)


def option_values(environ: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields of `Config` that the options in `environ` set."""
    given = _pairs(environ.get(ASD_OPTIONS, ""))
    return {
        option.field: option.value_of(given[option.name], f"{ASD_OPTIONS}: {option.name}")
        for option in OPTIONS
        if option.name in given
    }


def with_options(environ: Mapping[str, str], **defaults: str) -> dict[str, str]:
    """Returns `environ` with these options added; options that it has already override them."""
    given = [f"{name}:{text}" for name, text in defaults.items()]
    return {**environ, ASD_OPTIONS: ",".join(filter(None, [*given, environ.get(ASD_OPTIONS, "")]))}


def _pairs(text: str) -> dict[str, str]:
    known = [option.name for option in OPTIONS]
    given = {}
    for item in filter(None, map(str.strip, text.split(","))):
        name, colon, value = item.partition(":")
        name = _FORMER.get(name.strip(), name.strip())
        if not colon or name not in known:
            raise ConfigError(ASD_OPTIONS, item, f"it must be name:value pairs with the names {', '.join(known)}")
        given[name] = value.strip()
    return given
