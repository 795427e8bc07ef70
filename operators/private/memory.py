"""When a tensor's memory may be read at its address, under names that MindSpore keeps to itself, as in 2.9 and 2.10."""

from __future__ import annotations

from mindspore._c_expression import synchronize

__all__ = ["wait_for_writes"]


def wait_for_writes() -> None:
    """Waits until everything that was called so far has written its results.

    `mindspore.runtime.synchronize` does the same, but says on a CPU, once, that it does not support it.
    """
    synchronize()
