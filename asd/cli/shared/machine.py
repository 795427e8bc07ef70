"""What this machine has, found out without importing any of it."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

__all__ = ["describe_machine", "kernel_path"]

_PACKAGES = ("mindspore", "mindformers", "numpy", "prometheus_client")


def describe_machine() -> dict[str, str | None]:
    """Python, the packages that matter, and the C++ kernel; None for what is not installed."""
    kernel = kernel_path()
    return {
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        **{package: _version(package) for package in _PACKAGES},
        "C++ kernel": str(kernel) if kernel else "not built; MindSpore operators do its work, more slowly",
    }


def kernel_path() -> Path | None:
    """The kernel's shared library, or None when it was not built; `asd.operators` itself stays unloaded."""
    package = find_spec("asd.operators")
    folders = package.submodule_search_locations if package else None
    return next((path for folder in folders or () for path in sorted(Path(folder, "kernel").glob("_kernel*.so"))), None)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
