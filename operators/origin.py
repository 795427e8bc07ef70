"""Where the values of this process come from."""

from __future__ import annotations

import socket

import mindspore as ms
from mindspore.communication import GlobalComm, get_rank

from asd.config import Config
from asd.origin import Origin

__all__ = ["origin_of_process"]


def origin_of_process(config: Config) -> Origin:
    """Run, rank, host and device of this process."""
    rank = get_rank() if GlobalComm.INITED else 0
    # A launcher may show a process only its own device, or any under another number.
    device = f"{ms.get_context('device_target')}:{config.device or ms.get_context('device_id')}"
    return Origin(config.name_of_run(), rank, socket.gethostname(), device)
