"""A device that computes wrongly: builds `device.cpp`, puts it below MindSpore, and says what it does.

It has to be loaded before MindSpore. Everything that a process computes passes it, in both modes: forward and backward
pass, updates, and what a detector computes of its own.

    device = Device()
    import mindspore
    device.break_down(broken("MatMul", core=3, cores=24, rows=8, columns=16), broken("ReduceSum", value="one", types=2))
    device.shake(0.2, seed=7)
    device.begin(step)
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("device.cpp")
THIRD_PARTY = ("", "robin_hood_hashing", "securec/include")
PARTS = (
    *("", "include", "core/include", "core/mindrt/include", "core/mindrt", "ops", "ops/include", "ops/kernel/include"),
    *("ccsrc", "ccsrc/include", "ccsrc/minddata/mindrecord/include"),
)
"""Folders of headers in MindSpore's wheel."""
LIBRARIES = ("core", "common", "hardware_abstract")
NOISY = (
    "MatMul BatchMatMul MatMulExt Dense Conv2D Conv2DBackpropInput Conv2DBackpropFilter ReduceSum ReduceMean SumExt"
    " MeanExt BiasAddGrad UnsortedSegmentSum LayerNormGrad BatchNorm BatchNormGrad"
)
"""Kernels whose sums a device makes in another order in each call, as long as nobody asks for determinism."""


EXTENTS = ("element", "four", "row", "periodic", "quarter", "range", "all", "tile row", "tile column", "rare")
VALUES = ("zero", "flip", "stuck", "infinite", "not a number", "one", "stale", "shifted", "lost")
"""What of a result is struck, and what becomes of it; a fault has their numbers."""


class Broken(ctypes.Structure):
    """A fault of a device; the fields are those of `Fault` in `device.cpp`."""

    _fields_ = (
        ("names", ctypes.c_char * 2048),
        *((name, ctypes.c_int64) for name in ("first", "last", "bytes", "call", "cycle")),
        ("before", ctypes.c_uint64),
        ("most", ctypes.c_int64),
        ("chance", ctypes.c_double),
        ("seed", ctypes.c_uint64),
        *((name, ctypes.c_int32) for name in ("extent", "value", "period", "exponent")),
        *((name, ctypes.c_int32) for name in ("core", "cores", "rows", "columns", "types")),
        ("place", ctypes.c_double),
        ("bit", ctypes.c_double),
        ("mask", ctypes.c_uint32),
        ("stuck", ctypes.c_float),
    )


def broken(names: str, extent: str = "all", value: str = "zero", **more: float) -> Broken:
    """Returns a fault of these kernels, in each call of each step unless `more` says otherwise.

    Args:
        names: Of kernels, as MindSpore has them, with spaces between.
        extent: One of `EXTENTS`. `tile row`, `tile column` and `rare` (one of `period` bit patterns) are of a core.
        value: One of `VALUES`; `stale` takes the step before's, so that steps have to be begun; `lost` what
            was in memory.
        more: Fields of `Broken`. `core`, `cores`, `rows` and `columns` choose what one core makes.
    """
    known = {"last": 2**40, "bytes": -1, "call": -1, "chance": 1.0, "mask": 1, "period": 1} | more
    return Broken(names=f" {names} ".encode(), extent=EXTENTS.index(extent), value=VALUES.index(value), **known)


class _Strike(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("step", "bytes", "call")),
        ("before", ctypes.c_uint64),
        ("changed", ctypes.c_int64),
        ("name", ctypes.c_char * 64),
    )


class Strike(NamedTuple):
    """The first result that a device made wrong."""

    step: int  # of the training, from 1
    kernel: str  # mindSpore's name of it
    bytes: int  # size of the result
    call: int  # which call of that kernel with that size in the step, from 0
    before: int  # a hash of the right result
    changed: int  # elements whose bits changed


class Device:
    """The device below MindSpore, which is loaded by this: right until it is broken."""

    def __init__(self) -> None:
        if "mindspore" in sys.modules:
            raise RuntimeError("MindSpore is loaded: a device has to be there before.")
        self._library = ctypes.CDLL(str(build()), mode=ctypes.RTLD_GLOBAL)
        self._library.device_calls.restype = ctypes.c_char_p
        self._library.device_strikes.restype = ctypes.c_int64
        self._library.device_step.argtypes = (ctypes.c_int64, ctypes.c_bool)
        self._library.device_break.argtypes = (ctypes.POINTER(Broken), ctypes.c_int64)
        self._library.device_noise.argtypes = (ctypes.c_char_p, ctypes.c_double, ctypes.c_uint64)

    def break_down(self, *broken: Broken) -> None:
        """Has these faults from now on, and no other."""
        self._library.device_break((Broken * len(broken))(*broken), len(broken))

    def shake(self, share: float, seed: int, names: str = NOISY) -> None:
        """Draws the last bit of a share of the numbers anew in each call; sums that are exact keep theirs."""
        self._library.device_noise(f" {names} ".encode(), share, seed)

    def begin(self, step: int, *, listing: bool = False) -> None:
        """Tells it the step; a step that is made again is the same one. `listing`: it notes each call."""
        self._library.device_step(step, listing)

    def calls(self) -> list[tuple[str, int, int]]:
        """Kernel, bytes of the result and number of each call that was noted."""
        lines = self._library.device_calls().decode().splitlines()
        return [(name, int(size), int(call)) for name, size, call in (line.split() for line in lines)]

    def strikes(self) -> tuple[int, Strike | None]:
        """How many results it made wrong, and the first of them."""
        raw = _Strike()
        number = self._library.device_strikes(ctypes.byref(raw))
        one = Strike(raw.step, raw.name.decode(), raw.bytes, raw.call, raw.before, raw.changed)
        return number, one if number else None


def build() -> Path:
    """The library, compiled once for each version of MindSpore and of the source.

    Raises:
        SystemExit: There is no compiler, or it fails, or the library's folder is somebody else's.
    """
    home = Path(find_spec("mindspore").submodule_search_locations[0])
    key = hashlib.sha256(SOURCE.read_bytes() + version("mindspore").encode() + str(home).encode()).hexdigest()[:16]
    target = Path(tempfile.gettempdir()) / f"held_out-{os.getuid()}" / f"device-{key}.so"
    target.parent.mkdir(mode=0o700, exist_ok=True)
    if target.parent.is_symlink() or target.parent.stat().st_uid != os.getuid():
        raise SystemExit(f"{target.parent} is somebody else's; no library is loaded from there.")
    if not target.exists():
        if shutil.which("g++") is None:
            raise SystemExit("g++ is needed to build the device that is struck; install it.")
        made = target.with_suffix(f".{os.getpid()}")
        done = subprocess.run(_compiler(home, made), capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"the device that is struck was not built:\n{done.stderr[-2000:]}")
        made.replace(target)
    return target


def _compiler(home: Path, made: Path) -> list[str]:
    """The call of the compiler, with the flags of MindSpore's own `CustomOpBuilder`."""
    parts = [Path("."), Path("include"), *(Path("include", "third_party", each) for each in THIRD_PARTY)]
    folders = [*parts, *(Path("include", "mindspore", each) for each in PARTS)]
    return [
        *("g++", "-std=c++17", "-O2", "-fPIC", "-shared", "-w"),
        *("-DENABLE_FAST_HASH_TABLE=1", "-D_GLIBCXX_USE_CXX11_ABI=0"),
        *(f"-I{home / each}" for each in folders),
        *(str(SOURCE), "-o", str(made), f"-L{home / 'lib'}", f"-Wl,-rpath,{home / 'lib'}"),
        *(f"-l:libmindspore_{each}.so" for each in LIBRARIES),
    ]
