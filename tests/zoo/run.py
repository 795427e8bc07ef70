"""One group of the zoo in a process of its own: `python tests/zoo/run.py KIND MODE PRECISION [SEED]`.

The last line that it prints is a JSON list of cells.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

os.environ.update({"GLOG_v": "3", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")  # with AVX-512 some convolutions are fifty times slower
sys.path[:0] = [str(Path(__file__).resolve().parents[2])]


def main() -> None:
    """Runs the group."""
    kind, mode, precision, seed = sys.argv[1], sys.argv[2], sys.argv[3], int((*sys.argv, "0")[4])
    began = time.monotonic()
    import mindspore as ms
    from cells import run_group
    from trainings import MODES

    ms.set_context(mode=MODES[mode], runtime_num_threads=1)
    ms.set_device("CPU")
    cells = run_group(kind, mode, precision, seed)
    seconds = round(time.monotonic() - began, 1)
    print(json.dumps([{**cell, "seconds": seconds, "seed": seed} for cell in cells], default=str))


if __name__ == "__main__":
    main()
