"""Plays the parts of the demo, one after the other."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from asd.config import Config
from asd.errors import ConfigError
from asd.injection import Fault

PARTS = ("detection", "unseen", "persistent", "transient", "poisoned")
_NEXT = """
Next: `NPU_ASD_ENABLE=1 python train.py` for a training of your own;
      `asd run --ranks 2 --spares 1 -- python train.py` for a job that replaces its devices;
      `asd demo --help` for other faults; `asd env` for the settings."""


def play(
    parts: Sequence[str], config: Config, fault: Fault, args: argparse.Namespace, out: Path, bar: Callable[..., Any]
) -> dict[str, Any]:
    """Plays parts; returns the checks and the paths of the files.

    Args:
        parts: Some of `PARTS`.
        config: Settings of detection in the first part.
        fault: Fault of the first part.
        args: The options of the command.
        out: Folder for files, from `clear`.
        bar: Makes a progress bar from its label and its total.
    """
    from asd.demo.detection import Detection, Unseen
    from asd.demo.job import Acts

    result: dict[str, Any] = {"checks": {}}
    if "detection" in parts:
        result = Detection(args, out, bar, config, fault).tell()
    if "unseen" in parts:
        result["checks"] |= Unseen(args, out, bar).tell()
    acts = [part for part in PARTS[2:] if part in parts]
    if acts:
        told = Acts(args, out, bar).tell(acts)
        result |= {**told, "checks": {**result["checks"], **told["checks"]}}
    if not args.json:
        print(_NEXT)
    return result


def clear(out: Path) -> None:
    """Empties the folder, but raises if an earlier demo did not write its files."""
    marker = out / ".asd-demo"
    if out.exists() and any(out.iterdir()) and not marker.exists():
        raise ConfigError("--out", str(out), "valid is a new or empty folder, or one that an earlier demo left")
    shutil.rmtree(f"{out}/.", ignore_errors=True)  # its content alone: it may be a mount or a link
    out.mkdir(parents=True, exist_ok=True)
    marker.touch()
