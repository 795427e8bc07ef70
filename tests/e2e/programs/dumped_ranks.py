"""A rank that dumps a step: `dumped_ranks.py FOLDER`; started by msrun."""

import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.communication import get_rank, init

from asd.operators import PrecisionDebugger

ms.set_context(mode=ms.PYNATIVE_MODE)
init()
net = nn.Dense(4, 1, weight_init="ones")
debugger = PrecisionDebugger(task="statistics", level="L0", dump_path=sys.argv[1])
debugger.start(net)
net(Tensor(np.full((2, 4), get_rank(), np.float32)))
debugger.stop()
