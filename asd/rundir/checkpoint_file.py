"""Checks that a checkpoint file without a manifest is whole: one written at the time of a crash ends within a part."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import BinaryIO

_PARTS = b"\n"  # each part of a `.ckpt` begins with it, and its length
_CRC, _CRC_DIGITS = b"crc_num", 10
_LONGEST_HEAD = 100 << 20


def torn(path: Path) -> str:
    """Returns why the file can't be read, without a full stop; empty when all of its parts are there."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            is_whole = (_has_tensors if path.suffix == ".safetensors" else _has_parts)(file, size)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return f"it can't be read ({getattr(error, 'strerror', '') or error})"
    return "" if is_whole and size else f"it ends before its end, with {size} bytes"


def _has_parts(file: BinaryIO, size: int) -> bool:
    """Follows a `.ckpt`: a part for each parameter, in the wire form of protobuf, and maybe a sum of its bytes."""
    position = 0
    while position < size:
        file.seek(position)
        head = file.read(11)
        if head.startswith(_CRC):
            return size - position == len(_CRC) + _CRC_DIGITS
        if head[:1] != _PARTS:
            raise ValueError("it is no checkpoint")
        used = next((count for count, byte in enumerate(head[1:], 1) if byte < 0x80), 0)
        length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(head[1 : 1 + used]))
        position += 1 + used + length if used else size + 1
    return position == size


def _has_tensors(file: BinaryIO, size: int) -> bool:
    """Compares the size of a `.safetensors` with the ends of the tensors in its head."""
    length = int.from_bytes(file.read(8), "little")
    if length > min(size, _LONGEST_HEAD):
        return False
    tensors = json.loads(file.read(length))
    ends = [int(each["data_offsets"][1]) for name, each in tensors.items() if name != "__metadata__"]
    return size == 8 + length + max(ends, default=0)
