"""The self-test of a mode, with one of MindSpore's operators, or one of ours, broken: `WHAT MODE DEVICE PART ...`."""

import os
import sys

import numpy as np
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.ranks import weights
from asd.operators.recompute import product_operators
from asd.operators.selftest import hashing, primitives
from asd.operators.selftest.__main__ import main

what, *words = sys.argv[1:]
if what == "ReduceMax":
    P.ReduceMax = P.ReduceMin
elif what == "hash":
    weights.hash_without_kernel = hashing.hash_without_kernel = lambda array: int(np.asarray(array).size)
elif what == "checksum":
    product_operators._DEVIATIONS = 1e9  # it takes any product for right
elif what == "crash":
    primitives._cast = lambda _dtype: os.kill(os.getpid(), 9)
sys.exit(main(words))
