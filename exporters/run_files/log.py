"""Events as log lines, for people and for grep."""

from __future__ import annotations

import logging
import os
import sys

from asd.config import Config
from asd.event import Event
from asd.origin import Origin
from asd.rules.step.delivery import Headlines
from asd.verdict import Level, Verdict


class LogSink:
    """Writes events as lines: WARNING for the second level, ERROR for the rest.

    They go to the logger `asd`, without any handler to standard error in the form of Ascend application logs.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self.logger = logger if logger is not None else logging.getLogger("asd")
        self._headlines = Headlines()
        if not self.logger.hasHandlers():
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(
                logging.Formatter(
                    f"[%(levelname)s] ASD({os.getpid()}):%(asctime)s.%(msecs)03d %(message)s", "%Y-%m-%d-%H:%M:%S"
                )
            )
            self.logger.addHandler(handler)
            self.logger.setLevel(logging.INFO)

    def __call__(self, event: Event) -> None:
        """Writes `event` as one line, if it is to be written."""
        if self._headlines.has(event):
            self.logger.log(logging.WARNING if event.level is Level.WARNING else logging.ERROR, "%s", event.sentence())

    def values(self, step: int, checkpoint: str, verdict: Verdict) -> None:
        """Logs one normal value at INFO; used with `NPU_ASD_ENABLE=3`."""
        if verdict.level is Level.NORMAL:
            value, limit = verdict.value, verdict.limit
            self.logger.info("step=%d checkpoint=%s value=%.6g limit=%.6g", step, checkpoint, value, limit)


def open_log(config: Config, origin: Origin) -> LogSink:  # noqa: ARG001 - the signature of a sink factory
    """Factory for the entry-point group `asd.sinks`."""
    return LogSink()
