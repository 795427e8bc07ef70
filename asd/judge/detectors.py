"""Rules and detectors of a rank: one rule per checkpoint, and detectors that look at more than one checkpoint."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import inf, isfinite, log2, nan
from typing import Any, NamedTuple

from asd import older
from asd.config import Config
from asd.errors import StateError
from asd.judge.together import Together
from asd.rules import RULES, Adaptive, Rule, StateBound, make_rule
from asd.rules.base import largest_root
from asd.rules.checksum import ScoreRule
from asd.rules.kinds import KINDS, kind_of
from asd.rules.margins import LOOK, Margin
from asd.rules.reading import AVERAGED, CHECKSUM, GRADIENT, SCORES, TWICE, Reading, unscaled
from asd.verdict import Level, Verdict

_SQUARE = "max_square"
_KEPT = 7.0  # bits below the recent largest at which rounding may have made a value: bfloat16 keeps 8
_DOES_NOT_FIT = {
    CHECKSUM: "the matrix product does not fit its checksum",
    TWICE: "the same call gave different bits the second time",
}

Tensors = Mapping[str, tuple[Mapping[str, float], Mapping[str, float]]]
"""Values and growth by tensor of weights or of optimizer state, as a `StateBound` takes them."""


def statistic_of(config: Config) -> str:
    """Returns the statistic of a tensor that is judged: `l2`, its L2 norm, or `max`, its largest magnitude."""
    return "l2" if RULES[config.rule].feature == "l2" else "max"


class Judged(NamedTuple):
    """Judgement of one site in one step."""

    verdict: Verdict  # verdict of the rule
    feature: str  # feature that the verdict is about, as named in events
    broken: float = inf  # limit of the verdict's level that was broken; `inf` where none was, as for a first zero


class Detectors:
    """All rules and detectors of a rank, made as they are needed.

    Args:
        config: Names the rule and the detectors, with their thresholds.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._detectors = config.active_detectors
        # whether sites share margins, or any detector is on: then `end_step` ends each step
        self.have_detectors = bool(self._detectors) or config.rule == Adaptive.name
        self._judges: dict[str, Rule] = {}
        self._kinds: dict[str, str] = {}
        self._unseen: dict[str, Rule] = {}  # by kind: judges of nothing
        self._margins = {symbol: Margin(kind) for symbol, kind in KINDS.items()}
        self._bounds: dict[str, StateBound] = defaultdict(StateBound)
        self._together = Together()
        # by site, the value of an earlier attempt in the coming step: up to twice that value is no first-level anomaly,
        # unless it breaks the first absolute threshold
        self.expected: Mapping[str, float] = {}
        self.feature: str = self._new(GRADIENT).feature  # feature that most verdicts of a checkpoint are about

    def update(self, name: str, kind: str, value: float) -> Judged:
        """Returns the verdict on site `name` in this step."""
        judge = self._judges.get(name)
        if judge is None:
            judge = self._judges[name] = self._new(kind)
            self._kinds[name] = kind
        verdict = judge.update(value * value if judge.feature == _SQUARE else value)
        return Judged(verdict, judge.feature, judge.broken if verdict.level is Level.WARNING else verdict.limit)

    def limit(self, name: str, kind: str = GRADIENT) -> float:
        """Returns the largest value of site `name` that is not a first-level anomaly in the next step."""
        judge = self._judges.get(name) or self._unseen.get(kind)
        if judge is None:  # a site without a call is asked for in every step
            judge = self._unseen[kind] = self._new(kind)
        limit = _in_statistic(judge, judge.limit())
        most = self._config.upper[0] if kind == GRADIENT else inf
        return max(limit, min(2 * self.expected[name], most)) if name in self.expected else limit

    def second_limit(self, name: str, kind: str = GRADIENT) -> float:
        """Returns the largest value of site `name` that is not suspicious in the next step."""
        judge = self._judges.get(name)
        return self.limit(name, kind) if judge is None else _in_statistic(judge, judge.second_limit())

    def look(self, share: float, ranks: int, moved: float) -> None:
        """Sets what is suspicious in the next step: what a share of the job's healthy steps exceeds, and some bits.

        Any rank may exceed it; means are the same on all. With a share of 0 only what is beyond its margin is.
        """
        known = [kind for kind, margin in self._margins.items() if share and margin.exceeded(share) < inf]
        for kind, margin in self._margins.items():
            own = share / max(len(known), 1) / (1 if kind == AVERAGED else ranks)
            margin.look = max(margin.exceeded(own) + moved, LOOK) if kind in known else inf

    def least(self, name: str) -> float:
        """Returns the smallest value of `name` that is not suspicious; 0 where there is none."""
        return self._judges[name].least() if name in self._judges else 0.0

    def is_rounding(self, reading: Reading, loss_scale: float) -> bool:
        """Returns whether rounding alone may have made a value, as where terms cancel; two runs need not share it."""
        judge = self._judges.get(reading.checkpoint)
        return isinstance(judge, Adaptive) and log2(unscaled(reading, loss_scale) or 1e-99) < judge.known[1] - _KEPT

    def suspicion(self, reading: Reading, loss_scale: float) -> Judged | None:
        """Returns the verdict about a tensor beyond its second-level limits if the same step does not show it again.

        Returns:
            It; None where nothing is suspicious. Nothing is learned.
        """
        name, kind = reading.checkpoint, reading.kind
        value, second, least = unscaled(reading, loss_scale), self.second_limit(name, kind), self.least(name)
        if least <= value <= second:
            return None
        called, limit = f"{KINDS[kind].name}: " if kind in KINDS else "", second
        if value < least:
            words, limit = f"{called}{'below its range so far' if value else 'all zero'}", least
        else:
            words = _DOES_NOT_FIT.get(kind, f"{called}{value:.3g}, above its second-level limit of {second:.3g}")
        verdict = Verdict(Level.ERROR, f"{words}, but not in a rerun of the step", value, limit)
        return Judged(verdict, "score" if kind in SCORES else statistic_of(self._config), limit)

    def is_broken(self, reading: Reading, loss_scale: float) -> bool:
        """Returns whether `reading` is a first-level anomaly; nothing is learned from it."""
        value = unscaled(reading, loss_scale)
        return not (isfinite(value) and value <= self.limit(reading.checkpoint, reading.kind))

    def cause(self, readings: Sequence[Reading], loss_scale: float) -> tuple[str, bool]:
        """Returns what moved the sites of a step together, and whether that lasts; before any is judged."""
        values, ranges = {}, {}
        for reading in readings:
            name, value = reading.checkpoint, unscaled(reading, loss_scale)
            if reading.kind not in SCORES and value != 0.0:
                judge = self._judges.get(name)
                values[name] = log2(value) if isfinite(value) else inf
                ranges[name] = judge.known if isinstance(judge, Adaptive) else (nan, nan)
        return self._together.look(values, ranges)

    def lasts(self, names: Sequence[str]) -> bool:
        """Returns whether there are first-level anomalies, all of them only because they lasted."""
        judges = [self._judges.get(name) for name in names]
        return bool(judges) and all(isinstance(judge, Adaptive) and judge.lasts for judge in judges)

    def begin_anew(self) -> None:
        """Forgets the levels of sites, but not the margins; configured limits still hold."""
        self._judges, self._kinds, self._together = {}, {}, Together()

    def judge_state(self, found: Tensors, *, steps: int = 1) -> dict[str, Verdict]:
        """Returns the verdicts that are not normal, the worst first; for arguments see `Monitor.judge_state`."""
        told = [(name, self._bounds[name].update(*each, steps=steps)) for name, each in found.items()]
        verdicts = [each for each in told if each[1].level is not Level.NORMAL]
        return dict(sorted(verdicts, key=lambda each: each[1].level is not Level.ERROR))

    def forget_state(self) -> None:
        """Forgets the bounds on the state, after weights or optimizer state were replaced."""
        self._bounds.clear()

    def end_step(self) -> None:
        """Ends a step, after every checkpoint was judged."""
        for margin in self._margins.values():
            margin.refit()
        for name, bias in self._judges.items():
            if name.endswith(".bias"):
                weight = self._judges.get(f"{name[:-4]}weight")
                if isinstance(bias, Adaptive) and isinstance(weight, Adaptive):
                    bias.follow(weight)

    def state(self) -> dict[str, Any]:
        """Returns the state that a resumed run needs, ready for JSON except for `inf` and `nan`."""
        learned = {name: kind for name, kind in self._kinds.items() if kind not in SCORES}
        state: dict[str, Any] = {"checkpoints": {name: self._judges[name].state() for name in learned}}
        if self.have_detectors:
            state["detectors"] = {
                "kinds": learned,
                "margins": {symbol: margin.state() for symbol, margin in self._margins.items()},
                "bounds": {name: bound.state() for name, bound in self._bounds.items()},
            }
        return state

    @classmethod
    def of(cls, config: Config, state: Mapping[str, Any]) -> Detectors:
        """Makes the detectors that `state()` was made of."""
        judges = cls(config)
        detectors = older.renamed(state).get("detectors")
        if isinstance(detectors, Mapping) != judges.have_detectors:
            raise StateError(
                f"the saved state is of a run {'without' if detectors is None else 'with'} detectors; this run has "
                f"{', '.join(config.active_detectors) or 'none'}."
            )
        kinds = detectors.get("kinds", {}) if isinstance(detectors, Mapping) else {}
        for name, values in state["checkpoints"].items():
            judges._add(name, kinds.get(name, GRADIENT), values)
        if isinstance(detectors, Mapping):
            judges._restore_detectors(detectors)
        return judges

    def _add(self, name: str, kind: str, values: Mapping[str, Any]) -> None:
        try:
            judge = self._judges[name] = self._new(kind_of(kind).symbol)
            self._kinds[name] = kind
            judge.restore(values)
        except ValueError as error:  # of the state, or of the kind
            raise StateError(f"the saved state of checkpoint {name} can't be used: {error}") from error

    def _restore_detectors(self, detectors: Mapping[str, Any]) -> None:
        try:
            for symbol, margin in self._margins.items():
                margin.restore(detectors["margins"][symbol])
            for name, saved in detectors.get("bounds", {}).items():  # before 1.0 there was one for all
                self._bounds[name].restore(saved)
            self.end_step()
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # a StateError is a ValueError
            raise StateError(f"the saved state of the detectors can't be used: {error}") from error

    def _new(self, kind: str) -> Rule:
        config = self._config
        if kind in SCORES:
            return ScoreRule(_DOES_NOT_FIT[kind])
        if config.rule == Adaptive.name:
            return Adaptive(config.upper, config.sigma, kind=kind, margin=self._margins[kind])
        # A refused update never was part of the training, so a rule must not learn its value; an applied one was.
        return make_rule(config.rule, upper=config.upper, sigma=config.sigma, learn_errors=not config.refuses)


def _in_statistic(rule: Rule, limit: float) -> float:
    """Returns the limit of a rule, which may judge squares, as one of the statistic that is compared."""
    return largest_root(limit) if rule.feature == _SQUARE else limit
