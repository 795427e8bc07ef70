"""Python runs this at start in every process that `asd run` starts, because its folder stands first in PYTHONPATH.

It does what `mindspore_asd.pth` does, which has done it before where the package is installed in this Python.
"""

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
