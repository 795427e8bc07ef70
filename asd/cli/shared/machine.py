"""Describes this machine without importing any of its packages."""

import platform
from importlib.metadata import PackageNotFoundError, version

from asd.config import Config

_PACKAGES = ("mindspore", "mindformers", "numpy", "prometheus_client")


def describe_machine() -> dict[str, str | None]:
    """Returns the versions of Python and of the packages that matter; None for packages that are not installed."""
    return {
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        **{package: _version(package) for package in _PACKAGES},
    }


def machine_of(device: str) -> dict[str, str | None]:
    """Returns the same with the node and the tested device."""
    return {"host": Config.of_process().name_of_node(), "device": device, **describe_machine()}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
