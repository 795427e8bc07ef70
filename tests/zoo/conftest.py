"""The zoo's modules are found by their names, and its seed is told, so that a choice can be made again."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def pytest_report_header(config):
    from matrix import seed_of_the_day

    return f"zoo: ZOO_SEED={seed_of_the_day()}"
