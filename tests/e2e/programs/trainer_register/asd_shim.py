"""What a mindformers yaml can name: `REGISTER_PATH` points at the folder of this file."""

from mindformers.wrapper import MFTrainOneStepCell

from asd.injection import Fault
from asd.operators import ASDMonitor  # noqa: F401
from asd.operators.drill.inject import FaultInjector


class CPUTrainOneStepCell(MFTrainOneStepCell):
    """The stock cell asks an operator for overflows that the CPU does not have; these flags choose the other way."""

    __module__ = MFTrainOneStepCell.__module__  # what mindformers' own cells change in a step is known

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.ascend_910a_target, self.ascend_910b_target, self.enable_allfinite = False, True, False


class Drill(FaultInjector):
    """A fault, written as text."""

    def __init__(self, fault):
        super().__init__(Fault.parse(fault))
