"""Dumps a step with msprobe: `peer_dump.py config.json`."""

import sys

import mindspore as ms
from mindspore import mint

del mint.norm  # it has no kernel on a CPU; msprobe then takes another way to a norm

from msprobe.mindspore import PrecisionDebugger  # noqa: E402
from network import made  # noqa: E402

ms.set_context(mode=ms.PYNATIVE_MODE)
net, step = made()
debugger = PrecisionDebugger(config_path=sys.argv[1])
for _ in range(2):
    debugger.start(net)
    step()
    debugger.stop()
    debugger.step()
