"""Keys of a `config.json` that the ecosystem's tool documents and that have no effect here, with the reason."""

from collections.abc import Mapping
from typing import Any

_CHECK = "asd run_ut has its own options"
_KERNELS = "kernels of Ascend are not dumped"
_AFTERWARDS = "a run is compared afterwards, by asd compare"
NOT_DONE = {
    "extra_info": "stacks and parents are always written",
    "file_format": "tensors are always .npy files",
    "backward_input": _KERNELS,
    "device": _KERNELS,
    "acc_check": _CHECK,
    "run_ut": _CHECK,
    "online_run_ut": _CHECK,
    "free_benchmark": "a second computation with noise is not made",
    "exception_dump": "statistics are dumped; a dump keeps the step that an exception ends, with any task",
    "structure": "statistics are dumped too; stacks and parents are in each dump",
    "async_dump": "a tensor is written before the training goes on, which may change it",
    "custom_op_namespaces": "an operator of your own is recorded at no level",
    "slice": "whole tensors are recorded",
    "load": "inputs are not put in the place of a module's own",
    "risk_level": "all APIs are recorded, whatever their risk",
    "request_id": "a training has no requests",
    "nan_check": "the task overflow_check looks at values, and not at the registers of a device",
    "bench_path": _AFTERWARDS,
    "diff_nums": _AFTERWARDS,
    "seed": "seed_all() of asd.operators.ptdbg sets it",
    "is_deterministic": "mindspore.set_deterministic() switches it on",
}
"""By key or task: why it does nothing."""
NO_LEVEL = {"L2": _KERNELS}
COUNTS = (
    *("count", "zero count", "negative zero count", "positive zero count"),
    *("nan count", "negative inf count", "positive inf count"),
)
"""Summaries that are not recorded."""
_AS_HERE = {"extra_info": True, "file_format": "npy", "risk_level": "ALL"}  # values that ask for what is done anyway


def not_done(content: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the keys that ask for something which is not done, each with the reason.

    Args:
        content: The object of a file, or of a task in it. An object in it is the section of another task, which asks
            for nothing while this one is chosen.
    """
    asked = {
        key: reason
        for key, reason in NOT_DONE.items()
        if key in content
        and (not isinstance(content[key], dict) or key == "load")
        and (content[key] != _AS_HERE[key] if key in _AS_HERE else content[key])
    }
    for key in ("structure", "exception_dump"):
        if content.get("task") == key:
            asked[f"task {key}"] = NOT_DONE[key]
    if content.get("level") == "debug":
        asked["level debug"] = "single objects are not saved, and nothing is recorded"
    given = content.get("summary_mode")
    for each in given if isinstance(given, list) else [given]:
        if each in COUNTS:
            asked[f"summary_mode {each}"] = "it is not recorded"
        elif each in ("xor", "hash"):
            asked[f"summary_mode {each}"] = "a CRC32 is recorded in its place"
    return tuple(f"{key} ({reason})" for key, reason in asked.items())
