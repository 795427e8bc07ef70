"""Python runs this at start in every process that `asd run` starts, because its folder stands first in PYTHONPATH.

It does what `mindspore_asd.pth` does, which has done it before where the package is installed in this Python.
"""

import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path


def _run_the_other() -> None:
    """Runs the sitecustomize that this one hides, if there is one."""
    here = Path(__file__).resolve().parent
    elsewhere = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


import_module("mindspore_asd_start")
_run_the_other()
if "ASD_DRILL" in os.environ:  # noqa: TID251 - no setting: a training of `asd drill`
    try:
        import_module("asd.drill.writes").begin(os.environ["ASD_DRILL"])  # noqa: TID251
    except Exception as error:  # Python would go on, and the training would write in place
        sys.exit(f"asd: a drill needs the package in this Python too, {sys.executable}: {error!r}")
