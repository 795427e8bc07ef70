"""MindSpore's own stress test of an Ascend device."""

from __future__ import annotations

from asd.errors import UnsupportedError

__all__ = ["CODES", "vendor_test"]

CODES = {0: "found nothing", 1: "could not be started", 2: "found a hardware failure"}
"""What `mindspore.tools.stress_detect` returns, as its document says."""


def vendor_test() -> int:
    """Tests the cores of the Ascend device that is set, for a time that MindSpore chooses; returns one of `CODES`.

    Raises:
        UnsupportedError: MindSpore does not do it here.
    """
    try:
        from mindspore.tools import stress_detect
    except ImportError:  # before 2.7.1
        from mindspore.utils import stress_detect
    try:
        return int(stress_detect("aic"))
    except RuntimeError as error:
        first = str(error).strip().partition("\n")[0].rstrip(".")
        raise UnsupportedError(f"MindSpore's own stress test does not run: {first}.") from error
