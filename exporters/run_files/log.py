"""Events as log lines, for people and for grep."""

import logging
import os
import sys

from asd.config import Config
from asd.event import Event
from asd.origin import Origin
from asd.verdict import Level, Verdict

_SECOND = (1, 10, 100)  # which steps with second-level anomalies alone are logged: a healthy training has some
_WORSE = 10.0  # and each that is so many times as far beyond its limit as those that were logged


class LogSink:
    """Writes events as lines: WARNING for the second level, ERROR for the rest.

    They go to the logger `asd`, without any handler to standard error in the form of Ascend application logs.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self.logger = logger if logger is not None else logging.getLogger("asd")
        self._headlines = _Headlines()
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


class _Headlines:
    """Which events are logged: all, but of a step's anomalies one, which names the other places.

    Of steps with second-level anomalies alone a few are logged, and whatever is ten times worse than what was.
    """

    def __init__(self) -> None:
        self._step = self._second = 0  # of the last anomaly that was logged; how many had second-level ones alone
        self._worst = 0.0  # of these, how many times its limit a logged value was
        self._first = -1  # the last step with one of first level

    def has(self, event: Event) -> bool:
        """Returns whether `event` is logged; an anomaly of weights or of optimizer state is no other's place."""
        if event.kind != "anomaly":
            return True
        second, far = event.level is Level.WARNING, _far(event)
        self._first = self._first if second else event.step
        logged = second and event.step != self._first and far >= _WORSE * self._worst > 0.0
        if event.step != self._step or event.key:
            self._step = event.step
            self._second += second
            logged |= not second or bool(event.incident) or self._second in _SECOND
        if logged and second:
            self._worst = max(self._worst, far)
        return logged


def _far(event: Event) -> float:
    """Returns how many times beyond its limit a value is, above or below; 1 where there is none."""
    limit, value = event.limits[0] if event.limits else 0.0, event.value
    return max(value / limit, limit / value) if value > 0.0 and limit > 0.0 else 1.0


def open_log(config: Config, origin: Origin) -> LogSink:  # noqa: ARG001 - the signature of a sink factory
    """Makes the sink of the entry-point group `asd.sinks`."""
    return LogSink()
