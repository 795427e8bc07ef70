"""No check gives the compiler a small scalar, for it may take another one for it.

A function of a graph is compiled once for equal arguments, and two floats less than 2.2e-16 apart may be equal there,
by the chance of a hash: a wrong number without a word, or an error of the compiler.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TRAINING = """
import sys
import mindspore as ms
sys.path[:0] = sys.argv[1:]
ms.set_context(mode=ms.GRAPH_MODE)
from asd import Config
from asd.operators import Checksum, StepMonitor
from checked_nets import trained
import test_checked_convolution, test_checked_lookup, test_checked_norm, test_checked_softmax
nets = test_checked_convolution.Net, test_checked_lookup.Net, test_checked_norm.Block, test_checked_softmax.Attention
for make in nets:
    trained(make(), StepMonitor(Config(enable=1), sinks=[], checksum=Checksum(every=2)), steps=1)
"""


@pytest.mark.usefixtures("clean")
def test_no_graph_of_a_check_has_a_scalar_so_small_that_the_compiler_mistakes_it(tmp_path):
    here = Path(__file__).parent
    # Of all passes one that sees calls with their arguments, before they are put in line.
    saved = {"MS_DEV_SAVE_GRAPHS": "1", "MS_DEV_SAVE_GRAPHS_PATH": "graphs"}
    environ = {**os.environ, **saved, "MS_DEV_DUMP_IR_PASSES": "check_bprop_eliminate", "ASD_PROTECTION": "full"}
    program = [sys.executable, "-c", TRAINING, str(here), str(here.parent)]
    done = subprocess.run(program, cwd=tmp_path, env=environ, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    graphs = [path.read_text() for path in (tmp_path / "graphs").glob("*.ir")]
    files = "convolution", "lookup", "norm", "product", "score", "softmax"
    assert not [name for name in files if not any(f"/{name}.py" in graph for graph in graphs)]
    scalars = {float(number) for graph in graphs for number in re.findall(r"\bF32\((-?[0-9.e+-]+)\)", graph)}
    assert 0.4 in scalars  # of a norm
    assert not [number for number in scalars if 0 < abs(number) < 1e-14]
