"""A process that ends in the middle of a recorded step."""

import subprocess
import sys
from pathlib import Path

import pytest
from debugged_nets import dump_of

TRAINING = """
import sys
sys.path.insert(0, sys.argv[2])
import mindspore as ms
from debugged_nets import Net, batches
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.operators import PrecisionDebugger
ms.set_context(mode=ms.PYNATIVE_MODE)
net = Net()
debugger = PrecisionDebugger(DebuggerConfig.of({"task": "tensor", "level": "mix", "dump_path": sys.argv[1]}))
debugger.start(net)
net(batches(1)[0]).asnumpy()
raise RuntimeError("of the user")
"""
OVERFLOW = """
import sys
sys.path.insert(0, sys.argv[2])
import mindspore as ms
from asd.operators.ptdbg import overflow_check, register_hook, set_dump_path
from debugged_nets import Net, batches
ms.set_context(mode=ms.PYNATIVE_MODE)
net = Net()
set_dump_path(sys.argv[1])
register_hook(net, overflow_check, overflow_nums=1)
ms.grad(lambda x: net(x * 1e-35) * 1e30 * 1e30)(batches(1)[0])
raise ValueError("of the user")
"""


def run(program, folder):
    command = [sys.executable, "-c", program, str(folder), str(Path(__file__).parents[1])]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_an_exception_in_a_step_leaves_the_files_of_what_was_computed(tmp_path):
    done = run(TRAINING, tmp_path)
    assert (done.returncode, done.stderr.count("Traceback")) == (1, 1)
    assert "Cell.head.Dense.forward.0" in dump_of(tmp_path)[0]["data"]


@pytest.mark.slow
def test_an_overflow_that_nobody_waited_for_is_told_at_the_end_and_adds_no_traceback(tmp_path):
    done = run(OVERFLOW, tmp_path)
    assert "[overflow 1 times]" in done.stderr
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.strip().endswith("ValueError: of the user")
