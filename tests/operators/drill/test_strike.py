"""Faults made by the device's operators: the same numbers as on the host."""

import numpy as np
import pytest
from mindspore import Tensor

from asd.injection import Fault
from asd.operators.drill.strike import DeviceFault
from benchmarks._host_fault import apply

CHANGES = ("flip=30", "flip=3", "flip=31", "scale=1e4:elements=3", "set=nan", "stick=7", "noise=0.5", "factor=4")


@pytest.mark.parametrize("change", [*CHANGES, "zero=2", "block=2", "shift=1"])
@pytest.mark.parametrize("bits", [16, 32])
def test_a_device_strikes_as_the_host_would_and_once(bits, change, mode):
    changes = change.replace("30", "14").replace("31", "15").replace("1e4", "8") if bits == 16 else change
    fault = Fault.parse(f"output:x:{changes}:step=1:seed=2")
    before = np.random.default_rng(0).uniform(0.1, 0.9, (6, 8)).astype(f"float{bits}")  # no flip makes these NaN
    strike, after = DeviceFault(fault, "x"), apply(fault, before)
    strike.arm(active=True)
    assert np.array_equal(strike(Tensor(before)).asnumpy(), after, equal_nan=True)
    assert strike.told(1).elements == np.count_nonzero(before != after)
    for _ in range(9):  # as in one call of sunk data
        assert np.array_equal(strike(Tensor(before)).asnumpy(), before)
