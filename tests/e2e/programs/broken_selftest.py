"""The self-test of a mode, with one of MindSpore's operators, or one of ours, broken: `WHAT MODE DEVICE PART ...`."""

import os
import sys

from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.gate import statistics
from asd.operators.selftest import known_answers, measuring
from asd.operators.selftest.__main__ import main
from asd.operators.sensors import ready_made

what, *words = sys.argv[1:]
if what == "ReduceMax":
    P.ReduceMax = P.ReduceMin
elif what == "L2Loss":
    statistics._HALF_OF_SQUARES = P.ReduceMax()
elif what == "hash":
    measuring.hashes_of = lambda tensors: [each.size for each in tensors]
elif what == "backward":

    class Norm:
        """Its gradients are three percent too large."""

        bare = ready_made.LayerNormASD.original

        def __init__(self, *axes):
            self.op = self.bare(*axes)

        def __call__(self, *inputs):
            first, mean, variance = self.op(*inputs)
            return first * 1.03 - F.stop_gradient(first * 0.03), mean, variance

    ready_made.LayerNormASD.original = Norm
elif what == "crash":
    known_answers._try = lambda *_: os.kill(os.getpid(), 9)
sys.exit(main(words))
