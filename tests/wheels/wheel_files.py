"""Where the wheels of `make wheels` are."""

import os
import zipfile
from pathlib import Path

FOLDER = os.environ.get("WHEELS_FOLDER")
KERNEL = "asd/operators/kernel/_kernel.abi3.so"


def the_wheel(machine: str) -> Path:
    """The one for this machine."""
    (wheel,) = Path(FOLDER).glob(f"*-cp310-abi3-*manylinux_2_17_{machine}*.whl")
    return wheel


def kernel_of(wheel: Path, folder: Path) -> Path:
    """The kernel of a wheel, put into `folder`."""
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(KERNEL, folder))
