"""Python runs this at start in every process that `asd run` starts, because its folder stands first in PYTHONPATH.

It waits for the import of MindSpore and then imports `asd.operators`, which does the rest. Until then it costs nothing,
and a process that never imports MindSpore never notices.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


class _AfterMindSpore(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != "mindspore":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            _call_afterwards(spec.loader)
        return spec


def _call_afterwards(loader: Any) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        try:
            importlib.import_module("asd.operators")
        except ModuleNotFoundError as error:
            print(f"asd: {sys.executable} has no module {error.name}, so nothing is checked.", file=sys.stderr)

    loader.exec_module = exec_module


def _run_the_other() -> None:
    """Runs the sitecustomize that this one hides, if there is one."""
    here = Path(__file__).resolve().parent
    elsewhere = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, _AfterMindSpore())
_run_the_other()
