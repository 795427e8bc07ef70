"""Judges recorded values again, with the real rules and with thresholds of one's choice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from asd.config import Config
from asd.rules.readings.features import Features
from asd.rules.step.detectors import Detectors
from asd.rundir.recording import RecordedStep
from asd.tuning.scores import Scorer, Scores, tests_of
from asd.verdict import Level

__all__ = ["Replayed", "replay"]


@dataclass
class Replayed:
    """What came of it.

    Attributes:
        steps: Steps that were counted.
        checks: Values in them.
        first: First-level anomalies.
        second: Second-level anomalies.
        left_out: Steps that were not counted, by the reason.
        checkpoints: Per rank and checkpoint its anomalies of either level.
        scores: Per test the scores of the values, if they were wanted.
    """

    steps: int = 0
    checks: int = 0
    first: int = 0
    second: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    checkpoints: Counter[tuple[int, str]] = field(default_factory=Counter)
    scores: dict[str, Scores] = field(default_factory=dict)

    @property
    def flagged(self) -> int:
        """Anomalies of either level."""
        return self.first + self.second


def replay(
    steps: Iterable[RecordedStep],
    config: Config,
    *,
    keep_flagged: bool = False,
    measure: bool = False,
    counts: Callable[[RecordedStep], bool] = lambda _: True,
) -> Replayed:
    """Judges `steps` as a training with `config` would have.

    Flagged and refused steps pass through the rules as they did in the training, which learn from their other values;
    they are not counted and have no scores. A training that begins at step 1 begins with new rules; one that resumes
    goes on with those it has.

    Args:
        steps: In the order in which each rank made them.
        config: The rule, its tiers and thresholds. Tiers that look at more than one checkpoint take no part.
        keep_flagged: Whether they are counted and scored too.
        measure: Whether scores are kept.
        counts: Whether a step is counted; one that is not is learned from all the same.
    """
    done = Replayed()
    trainings: dict[int, _Training] = {}
    if measure:
        done.scores = {test.name: Scores() for test in tests_of(config)}
    for step in steps:
        if step.step == 1 or step.rank not in trainings:
            trainings[step.rank] = _Training(config, done)
        is_counted = counts(step)
        is_healthy = keep_flagged or not step.left_out
        if is_counted and not is_healthy:
            done.left_out[step.left_out] += 1
        trainings[step.rank].judge(step, is_counted=is_counted and is_healthy, measure=measure and is_healthy)
    return done


class _Training:
    """The rules of one rank from its first step on."""

    def __init__(self, config: Config, done: Replayed) -> None:
        self._config, self._done = config, done
        self._judges = Detectors(config)
        self._scorers: dict[str, Scorer] = {}

    def judge(self, step: RecordedStep, *, is_counted: bool, measure: bool) -> None:
        done = self._done
        for name, kind, features in step.values:
            level = self._judges.update(name, kind, features).verdict.level
            if is_counted and level is not Level.NORMAL:
                done.first += level is Level.ERROR
                done.second += level is Level.WARNING
                done.checkpoints[step.rank, name] += 1
            if measure and features.finite:
                self._score(step, name, kind, features)
        if is_counted:
            done.steps += 1
            done.checks += len(step.values)
        self._judges.end_step()

    def _score(self, step: RecordedStep, name: str, kind: str, features: Features) -> None:
        scorer = self._scorers.get(name)
        if scorer is None:
            scorer = self._scorers[name] = Scorer(self._config, kind)
        for test, score in scorer.scores(features):
            self._done.scores[test].add(score, kind, name, step.rank, step.step)
