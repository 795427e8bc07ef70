"""Where the values of this process come from."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import mindspore as ms
from mindspore.communication import GlobalComm, get_rank

from asd.config import Config
from asd.monitor import Origin

__all__ = ["origin_of_process"]


def origin_of_process(config: Config) -> Origin:
    """Run, rank, host and device of this process; the run is named after `ASD_RUN_DIR` and the time it began."""
    rank = get_rank() if GlobalComm.INITED else 0
    device = f"{ms.get_context('device_target')}:{ms.get_context('device_id')}"
    run = f"{Path(config.run_dir).name}-{time.strftime('%Y%m%dT%H%M%S')}"
    return Origin(run, rank, socket.gethostname(), device)
