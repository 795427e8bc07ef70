"""The vendor's combined scheme among the ranks: every ten steps they tell one another about their strikes."""

from __future__ import annotations

import json
import logging

from asd.config import Config
from asd.operators.gate.part import Part, StepRecord
from asd.rules.checksum import ScoreRule
from asd.rules.step.combined_scheme import Action, Message

__all__ = ["StrikePoll"]

_LOG = logging.getLogger("asd.combined")
POLL_STEPS = 10
"""Steps from one exchange with the other ranks to the next."""


class StrikePoll(Part):
    """The combined scheme of one `StepMonitor` among the ranks, if the settings have it on."""

    def __init__(self, config: Config) -> None:
        self.is_on = config.combined.enable

    def ask(self, step: StepRecord) -> None:
        """Asks the ranks about their strikes when it is time; a call of all ranks.

        Raises:
            RankLostError: A rank did not answer.
        """
        scheme = self.monitor.judges.scheme
        failed = any(event.rule == ScoreRule.name for event in step.events)
        own = scheme.message(self.monitor.clock(), failed=failed)
        if step.number % POLL_STEPS:
            return
        told = [Message(*json.loads(message)) for message in self.ranks.gather(json.dumps(own).encode())]
        agreed = scheme.poll(told)
        if agreed.action is Action.START:
            ranks = ", ".join(map(str, agreed.ranks))
            _LOG.warning("Feature value detection strikes out on rank %s, CheckSum will be enabled globally.", ranks)
        elif agreed.action is Action.STOP:
            _LOG.warning("Global CheckSum result is %d", bool(agreed.ranks))
            if self.ranks.rank in agreed.ranks:
                _LOG.error("CheckSum detects MatMul error on rank %d", self.ranks.rank)
