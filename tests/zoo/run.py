"""One group of the zoo in a process of its own: `run.py KIND MODE PRECISION [SEED [CONFIGURATION ...]]`."""

import json
import os
import sys
import time
from pathlib import Path

from matrix import CONFIGURATIONS, seed_of_the_day

os.environ.update({"GLOG_v": "3", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")  # with AVX-512 some convolutions are fifty times slower
sys.path[:0] = [str(Path(__file__).resolve().parents[2])]


def main() -> None:
    """Runs the group."""
    kind, mode, precision = sys.argv[1:4]
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else seed_of_the_day()
    configurations = sys.argv[5:] or CONFIGURATIONS
    began = time.monotonic()
    import mindspore as ms
    from cells import run_group
    from trainings import MODES

    ms.set_context(mode=MODES[mode])
    ms.set_device("CPU")
    if mode == "pynative" and precision != "float32":
        ms.runtime.launch_blocking()  # thirty times faster; in float32 threads run on as they do for everyone
    cells = run_group(kind, mode, precision, seed, configurations)
    seconds = round(time.monotonic() - began, 1)
    print(json.dumps([{**cell, "seconds": seconds, "seed": seed} for cell in cells], default=str))


if __name__ == "__main__":
    main()
