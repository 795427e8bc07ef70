"""Wheels, and kernels of other machines."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for machine.py and wheel_files.py
