"""Programs that compile for Ascend where there is none."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for empty_cann.py
