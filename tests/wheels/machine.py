"""A kernel that is called in a process of its own: that of this machine, or of another one under qemu."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

CALLER = Path(__file__).parent / "caller.cpp"
COMPILERS = {"x86_64": ["x86_64-linux-gnu-g++"], "aarch64": ["aarch64-linux-gnu-g++"]}
RUNNERS = {"x86_64": [], "aarch64": ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]}


class Remote:
    """The functions of a kernel; buffers are arrays or bytes, lists of buffers are arrays of their addresses.

    Args:
        library: The kernel's file.
        machine: Whose instructions it has.
        folder: Where the program that calls it is put.
    """

    def __init__(self, library: Path, machine: str, folder: Path) -> None:
        program = folder / f"caller-{machine}"
        subprocess.run([*COMPILERS[machine], "-std=c++17", "-O1", str(CALLER), "-o", str(program), "-ldl"], check=True)
        self._process = subprocess.Popen(
            [*RUNNERS[machine], program, library], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def close(self) -> int:
        """Ends it; its exit code."""
        self._process.stdin.close()
        self._process.stdout.close()
        return self._process.wait(60)

    def call(self, name: str, *arguments: object) -> int:
        """What the function returns, as a signed number; arrays among the arguments hold afterwards what it wrote."""
        buffers: list[object] = []
        words = [_word(each, buffers) for each in arguments]
        self._send(b"c", _bytes(name.encode()), _number(len(buffers)))
        for buffer in buffers:
            data, places = _content(buffer)
            self._send(_bytes(data), _number(len(places)), *map(_number, (x for pair in places for x in pair)))
        self._send(_number(len(words)), *(_number(kind) + _number(value) for kind, value in words))
        result = struct.unpack("<q", self._receive(8))[0]
        for buffer in buffers:
            found = self._receive(len(_content(buffer)[0]))
            if isinstance(buffer, np.ndarray):
                buffer.reshape(-1).view(np.uint8)[:] = np.frombuffer(found, np.uint8)
        return result

    def read(self, address: int, dtype: np.dtype, count: int) -> np.ndarray:
        """What stands in its memory."""
        size = np.dtype(dtype).itemsize * count
        self._send(b"r", _number(address), _number(size))
        return np.frombuffer(self._receive(size), dtype).copy()

    def write(self, address: int, array: np.ndarray) -> None:
        """Puts an array into its memory."""
        self._send(b"w", _number(address), _bytes(array.tobytes()))

    def custom(self, name: str, inputs: Sequence[np.ndarray], size: int = 1) -> np.ndarray:
        """Calls a function as MindSpore calls one of `ops.Custom`; its output, float32 of this size."""
        output = np.zeros(size, np.float32)
        arrays = [*inputs, output]
        ranks = np.array([array.ndim for array in arrays], np.int32)
        shapes = [np.array(array.shape, np.int64) for array in arrays]
        dtypes = [array.dtype.name.encode() + b"\0" for array in arrays]
        assert self.call(name, len(arrays), arrays, ranks, shapes, dtypes, 0, 0) & 0xFFFFFFFF == 0, name
        return output

    def _send(self, *parts: bytes) -> None:
        self._process.stdin.write(b"".join(parts))

    def _receive(self, size: int) -> bytes:
        self._process.stdin.flush()
        found = self._process.stdout.read(size)
        assert len(found) == size, f"the caller ended with code {self._process.wait(10)}"
        return found


def _word(argument: object, buffers: list[object]) -> tuple[int, int]:
    if isinstance(argument, (int, np.integer)):
        return 0, int(argument)
    if isinstance(argument, (list, tuple)):
        argument = [_word(each, buffers)[1] for each in argument]
    buffers.append(argument)
    return 1, len(buffers) - 1


def _content(buffer: object) -> tuple[bytes, list[tuple[int, int]]]:
    """The bytes of a buffer, and which addresses stand in it."""
    if isinstance(buffer, list):
        return bytes(8 * len(buffer)), [(8 * i, target) for i, target in enumerate(buffer)]
    return (buffer if isinstance(buffer, bytes) else buffer.tobytes()), []


def _number(value: int) -> bytes:
    return struct.pack("<q", value)


def _bytes(value: bytes) -> bytes:
    return _number(len(value)) + value
