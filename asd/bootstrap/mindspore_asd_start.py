"""Makes `NPU_ASD_ENABLE` enough: it waits for the import of MindSpore and then imports `asd.operators`.

Python imports this at its start, once, in every process where detection is asked for or a drill runs: by
`mindspore_asd.pth`, which the package puts into site-packages together with a copy of this file, or by the
`sitecustomize` of `asd run`. It loads nothing of the package until MindSpore is imported, unless a drill runs, and a
process that never imports MindSpore never notices.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as of `typing`, which takes longer to import than all the rest
if TYPE_CHECKING:
    from typing import Any


class _AfterMindSpore:
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "mindspore":
            return None
        others = (each.find_spec for each in sys.meta_path if each is not self and hasattr(each, "find_spec"))
        spec = next(filter(None, (find_spec(name, path, target) for find_spec in others)), None)
        if spec is not None and spec.loader is not None:
            _call_around(spec.loader)
        return spec


def _call_around(loader: Any) -> None:
    execute = loader.exec_module

    def exec_module(module: Any) -> None:
        config = _load("asd.config")
        if config is not None:
            config.Config.of_process()  # a setting that is not valid ends the program before MindSpore begins
        execute(module)
        if config is not None:
            _load("asd.operators")

    loader.exec_module = exec_module


def _load(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever it is must not end a program that would have trained without
        print(f"asd: ERROR: detection is off: the import of {name} failed: {error!r}", file=sys.stderr)
        return None


def _redirect(folder: str) -> None:
    import importlib

    try:
        importlib.import_module("asd.drill.writes").begin(folder)
    except Exception as error:  # Python would go on, and the training would write in place
        print(f"asd: a drill needs the package in this Python too, {sys.executable}: {error!r}", file=sys.stderr)
        os._exit(1)


sys.meta_path.insert(0, _AfterMindSpore())
if "ASD_DRILL" in os.environ and not sys.flags.isolated:  # noqa: TID251 - a training of `asd drill`, not its keeper
    _redirect(os.environ["ASD_DRILL"])  # noqa: TID251
