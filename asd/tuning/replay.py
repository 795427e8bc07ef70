"""Judges recorded values again, with the real rules and with thresholds of one's choice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from asd.config import Config
from asd.judges import Judges
from asd.recording import Step
from asd.tiers import Features
from asd.tuning.scores import Scorer, Scores, tests_of
from asd.verdict import Level

__all__ = ["Replayed", "replay"]


@dataclass
class Replayed:
    """What came of it.

    Attributes:
        steps: Steps that were judged.
        checks: Values that were judged.
        first: First-level anomalies.
        second: Second-level anomalies.
        left_out: Steps that were not judged, by the reason.
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
    steps: Iterable[Step], config: Config, *, keep_flagged: bool = False, measure: bool = False,
    counts: Callable[[Step], bool] = lambda _: True,
) -> Replayed:  # fmt: skip
    """Judges `steps` as a training with `config` would have.

    A training that begins at step 1 begins with new rules; one that resumes goes on with those it has.

    Args:
        steps: In the order in which each rank made them.
        config: The rule, its tiers and thresholds. Tiers that look at more than one checkpoint take no part.
        keep_flagged: Whether flagged and refused steps are judged too.
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
        if step.left_out and not keep_flagged:
            done.left_out[step.left_out] += 1
        else:
            trainings[step.rank].judge(step, is_counted=is_counted, measure=measure)
    return done


class _Training:
    """The rules of one rank from its first step on."""

    def __init__(self, config: Config, done: Replayed) -> None:
        self._config, self._done = config, done
        self._judges = Judges(config)
        self._scorers: dict[str, Scorer] = {}

    def judge(self, step: Step, *, is_counted: bool, measure: bool) -> None:
        done = self._done
        for name, kind, features in step.values:
            level = self._judges.update(name, kind, features)[0].level
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

    def _score(self, step: Step, name: str, kind: str, features: Features) -> None:
        scorer = self._scorers.get(name)
        if scorer is None:
            scorer = self._scorers[name] = Scorer(self._config, kind)
        for test, score in scorer.scores(features):
            self._done.scores[test].add(score, kind, name, step.rank, step.step)
