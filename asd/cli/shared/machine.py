"""Describes this machine without importing any of its packages."""

import contextlib
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import asd
from asd.config import Config

_PACKAGES = ("mindspore", "mindformers", "numpy", "prometheus_client")
_GIT = ("git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12")


def commit() -> str:
    """Returns the commit of this package, with `-dirty` for a checkout with changes; `unknown` without both."""
    folder = Path(asd.__file__).parent
    found = ""
    with contextlib.suppress(OSError):
        if (note := folder / "commit.txt").is_file():
            found = note.read_text(encoding="utf-8")
        elif (folder.parent / ".git").exists():
            found = subprocess.run(_GIT, cwd=folder, capture_output=True, text=True, check=False).stdout
    return found.strip() or "unknown"


def describe_machine() -> dict[str, str | None]:
    """Returns the versions of Python and of the packages that matter; None for packages that are not installed."""
    return {
        "mindspore-asd": f"{asd.__version__}, commit {commit()}",
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
