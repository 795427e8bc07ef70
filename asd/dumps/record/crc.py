"""The check sum of a tensor, as the field `md5` of a dump holds it."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

__all__ = ["crc32"]


def crc32(array: np.ndarray[Any, Any]) -> str:
    """CRC-32 (that of zlib) of the bytes of `array` in C order, as eight lower-case hexadecimal digits.

    Args:
        array: Any shape and type. A bfloat16 tensor comes as float32, so that it agrees with a float32 tensor of equal
            values.

    >>> crc32(np.array([1, -2, 0], np.float32))
    '854d28b6'
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    return f"{zlib.crc32(flat.view(np.uint8).data):08x}"
