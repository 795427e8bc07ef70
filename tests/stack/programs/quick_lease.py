"""`asd` with a Lease that runs out after 3 s instead of 15, so that a test can kill who holds it a hundred times."""

import sys

from asd.cli import main
from asd.exporters.kubernetes import lease

lease._LEASE_SECONDS, lease._DEADLINE_SECONDS, lease._RENEW_SECONDS, lease._ANSWER_SECONDS = 3, 2.0, 0.4, 1.0
sys.exit(main(sys.argv[1:]))
