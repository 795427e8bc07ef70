"""Private names of MindSpore, and names that end with static graphs: looked up when they are used."""

import functools
import importlib
import re
from typing import Any, NamedTuple

import mindspore as ms

LAST_TRIED = "2.10"  # of the series of MindSpore


class _Name(NamedTuple):
    module: str
    off: str  # what is switched off without it


_NAMES = {
    "AutoParallel": _Name("mindspore.parallel.auto_parallel", "trainings in an AutoParallel cell are not found"),
    "get_parameter_redundancy": _Name("mindspore.train._utils", "ranks of a sharded network are not compared"),
    "_DataWrapper": _Name("mindspore.train.dataset_helper", "no step with sunk data is re-run"),
    "enable_data_broadcast": _Name("mindspore.train._utils", "no step with sunk data is re-run"),
    "bprop_getters": _Name("mindspore.ops._grad_experimental.grad_base", "no layer of a sharded network is checked"),
    "_grad_ops": _Name("mindspore.ops.operations", "no operator of a backward pass is probed"),
    "MixedPrecisionType": _Name("mindspore._c_expression", "mixed precision may cast the values of a check"),
}


@functools.cache
def find(name: str) -> Any:
    """Returns the object that MindSpore has under this name; None where this version has none."""
    try:
        return getattr(importlib.import_module(_NAMES[name].module), name)
    except (ImportError, AttributeError):
        return None


def newer_version(version: str = ms.__version__) -> str:
    """Returns a sentence about a MindSpore newer than the last tried, and the features that are off; else "".

    >>> newer_version("2.10.3")
    ''
    """
    if tuple(map(int, re.findall(r"\d+", version)[:2])) <= tuple(map(int, LAST_TRIED.split("."))):
        return ""
    off = dict.fromkeys(each.off for name, each in _NAMES.items() if find(name) is None)
    lost = "; ".join(off) or "nothing is switched off"
    return f"MindSpore {version} is newer than {LAST_TRIED}, the last that asd was tried with: {lost}"
