"""Tests one mode of one device: `python -m asd.operators.selftest MODE DEVICE PART ...`.

The command `asd selftest` starts it, with NPU_ASD_ENABLE=1, and reads its output.
"""

import sys
from collections.abc import Sequence

from asd.errors import ConfigError
from asd.operators.selftest.known_answers import test_operators, use_device
from asd.operators.selftest.measuring import test_hashes, test_measuring
from asd.operators.selftest.outcome import Report
from asd.operators.selftest.refusing import test_refusing
from asd.operators.selftest.repeating import test_repeating
from asd.operators.start.enable import disable

PARTS = {
    "operators": test_operators,
    "measuring": test_measuring,
    "hashes": test_hashes,
    "gate": test_refusing,
    "repeating": test_repeating,
}
"""Tests by name, in their order."""


def main(words: Sequence[str]) -> int:
    """Prints the outcome of every check; returns 2 where there is no such device, else 0.

    Args:
        words: Mode, device, and names of `PARTS`.
    """
    mode, device, *parts = words
    try:
        use_device(device, mode)
    except ConfigError as error:
        print(f"asd: {error}", file=sys.stderr)  # noqa: T201
        return 2
    disable()  # importing the package adds checks to all trainings; here each test adds its own
    report = Report(mode)
    for part in parts:
        PARTS[part](report)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
