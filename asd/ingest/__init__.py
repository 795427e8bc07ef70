"""The vendor's own alarms, read from its logs, as the same events.

`reader` follows the files and hands events to a sink, each exactly once. What a line says is read by one module per
source: `ascend_device` (the check on the chip), `mindspore_log` (the combined check), `torch_npu`, and `driver` (the
driver and the device plugin). They see a `LogLine` and return a `Finding`; `alarms` asks them in turn.

May import: `rundir`.
"""

from __future__ import annotations

from asd.ingest.alarms import Alarms
from asd.ingest.log_files import LogFiles
from asd.ingest.reader import Ingest
from asd.ingest.timestamps import read_zone
from asd.ingest.written import Known

__all__ = ["Alarms", "Ingest", "Known", "LogFiles", "read_zone"]
