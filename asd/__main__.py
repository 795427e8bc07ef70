"""`python -m asd`: the same as the command `asd`."""

import sys

from asd.cli import main

if __name__ == "__main__":
    sys.exit(main())
