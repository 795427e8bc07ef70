"""ASDMonitor: the monitor as an entry under `callbacks:` of a mindformers yaml."""

import sys
from typing import Any

from asd.config import Config
from asd.operators.start.pynative_trainer import TrainerMonitor, put_first


class ASDMonitor(TrainerMonitor):
    """`StepMonitor` that is on unless `NPU_ASD_ENABLE=0` is set; takes the same arguments.

    In a yaml, with `REGISTER_PATH` set to a folder that holds a file `asd_shim.py` with the one line `from
    asd.operators import ASDMonitor`:

        callbacks:
          - type: ASDMonitor
            auto_register: asd_shim.ASDMonitor

    In a script that imports `asd.operators` after `mindformers`, `type: ASDMonitor` alone is enough.
    """

    def __init__(self, config: Config | None = None, **kwargs: Any) -> None:
        super().__init__(config if config is not None else Config.of_process(NPU_ASD_ENABLE="1"), **kwargs)
        put_first()


def register() -> None:
    """Registers `type: ASDMonitor` with mindformers, if that is already imported."""
    if "mindformers" in sys.modules:
        from mindformers.tools.register import MindFormerModuleType, MindFormerRegister

        MindFormerRegister.register_cls(ASDMonitor, MindFormerModuleType.CALLBACK)
