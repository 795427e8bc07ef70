"""What this machine has, found out without importing any of it."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

__all__ = ["describe_machine"]

_PACKAGES = ("mindspore", "mindformers", "numpy", "prometheus_client")


def describe_machine() -> dict[str, str | None]:
    """Python and the packages that matter; None for what is not installed."""
    return {
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        **{package: _version(package) for package in _PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
