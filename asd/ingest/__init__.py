"""The vendor's own alarms, read from its logs, as the same events: what a line means stands in `patterns`.

May import: `rundir`.
"""

from __future__ import annotations

from asd.ingest.alarms import Alarms
from asd.ingest.log_files import LogFiles
from asd.ingest.reader import Ingest
from asd.ingest.timestamps import read_zone
from asd.ingest.written import Known

__all__ = ["Alarms", "Ingest", "Known", "LogFiles", "read_zone"]
