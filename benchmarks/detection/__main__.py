"""The command line: `python -m benchmarks.detection`."""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # started as `python benchmarks/detection`
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarks.detection.command import main

if __name__ == "__main__":
    raise SystemExit(main())
