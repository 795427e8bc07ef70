"""What the documents of the ecosystem's tool have in a `config.json` and nothing here does, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["NOT_DONE", "REASONS", "not_done"]

_CHECK = "asd run_ut has its own options"
_KERNELS = "kernels of Ascend are not dumped"
_REGISTERS = "the task overflow_check looks at values, and not at the registers of a device"
NOT_DONE: dict[str, tuple[str, tuple[Any, ...]]] = {
    "extra_info": ("stacks and parents are always written", (True,)),
    "file_format": ("tensors are always .npy files", ("npy",)),
    "backward_input": (_KERNELS, ([],)),
    "device": (_KERNELS, ("",)),
    "acc_check": (_CHECK, ()),
    "run_ut": (_CHECK, ()),
    "online_run_ut": (_CHECK, (False,)),
    "free_benchmark": ("a second computation with noise is not made", ()),
    "exception_dump": ("the journal of a step that an exception ends is kept always", ()),
    "risk_level": ("all APIs are recorded, whatever their risk", ("ALL", "all")),
    "request_id": ("a training has no requests", ([], "")),
    "slice": ("a tensor is written whole", ([],)),
    "nan_check": (_REGISTERS, ()),
    "bench_path": ("a run is compared afterwards, by asd compare", ()),
    "diff_nums": ("a run is compared afterwards, by asd compare", (-1,)),
    "seed": ("seed_all() of asd.operators.ptdbg sets it", ()),
    "is_deterministic": ("mindspore.set_deterministic() switches it on", (False,)),
}
"""By key: why it does nothing, and the values that ask for nothing."""
REASONS = {
    "free_benchmark": "a second computation with noise is not made",
    "exception_dump": "a dump keeps the step that an exception ends, with any task",
    "run_ut": "the command asd run_ut does that",
    "acc_check": "the command asd acc_check does that",
    "nan_check": _REGISTERS,
    "structure": "stacks and parents are in each dump",
    "debug": "single objects are not saved",
    "L2": _KERNELS,
}
"""By task or level: why there is none."""
_SECTIONS = {"acc_check", "run_ut", "free_benchmark", "exception_dump", "nan_check"}


def not_done(content: Mapping[str, Any], *, section: bool) -> dict[str, str]:
    """The keys that ask for something which is not done, each with the reason.

    Args:
        content: The object of a file, or of a task in it.
        section: Whether it is that of a task. A file may hold the settings of several tasks, and they ask for nothing
            while another task is chosen.
    """
    return {
        key: reason
        for key, (reason, idle) in NOT_DONE.items()
        if key in content
        and content[key] is not None
        and content[key] not in idle
        and (section or key not in _SECTIONS)
    }
