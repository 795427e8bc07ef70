"""What is run: which trainings, which faults in them, which controls. Seeds decide everything.

The split: detectors may be developed on `development`, whose networks, seeds, schedules and patterns are its own. Only
`evaluation` and its subset `quick` are ever reported.
"""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.detection.faults import PATTERNS, Fault, draw_fault
from benchmarks.detection.schedule import Schedule

__all__ = ["CONTROLS", "FROM_THE_START", "HORIZON", "PHASES", "SPLITS", "Unit", "draw_faults", "make_plan"]

HORIZON = 20
"""Steps that a branch with a fault is followed."""
CONTROLS = (
    "rate jump", "rate too hot", "data shift", "garbage batch", "loss scale", "resume", "short warm-up", "accumulation"
)  # fmt: skip
"""Legitimate events that no detector may blame on hardware."""
FROM_THE_START = ("short warm-up", "rate too hot")
"""Those that begin with the run; the others come in its middle."""
PHASES = {
    "first steps": ("none", 0.02),
    "warm-up": ("none", 0.09),
    "peak": ("none", 0.3),
    "decay": ("none", 0.85),
    "after resume": ("resume", 0.51),
    "in a rate jump": ("rate jump", 0.51),
}
"""When a fault strikes: the event of the run, which comes in its middle, and the share of the run that is over."""
TARGETS = {"site": 0.62, "weight": 0.1, "m": 0.07, "v": 0.07, "master": 0.07, "reduced": 0.07}
_FAMILIES = ("decoder-layernorm", "decoder-rmsnorm-gated", "encoder", "convolution")
_HELD_BACK = ("two elements", "zero rows", "lane", "row copy")


@dataclass(frozen=True)
class Split:
    """One part of the plan.

    Attributes:
        families: Names of networks.
        roundings: False for float32, True for emulated bfloat16.
        ranks: Numbers of replicas.
        control_ranks: The same, for runs with a legitimate event and no fault.
        controls: Which of `CONTROLS`.
        steps: Of a run.
        warm_up: Of a run.
        faults: Per run and phase.
        patterns: Which of `PATTERNS`.
        seed: The first seed.
        peaks: Learning rates, taken in turn.
    """

    families: tuple[str, ...]
    roundings: tuple[bool, ...]
    ranks: tuple[int, ...]
    control_ranks: tuple[int, ...]
    controls: tuple[str, ...]
    steps: int
    warm_up: int
    faults: int
    patterns: tuple[str, ...]
    seed: int
    peaks: tuple[float, ...]


_ALL = tuple(PATTERNS)
SPLITS = {
    "development": Split(
        ("small-decoder-layernorm", "small-convolution"), (False, True), (1, 3), (3,), CONTROLS, 120, 12, 12,
        tuple(name for name in _ALL if name not in _HELD_BACK), 1000, (3e-3,),
    ),
    "evaluation": Split(
        _FAMILIES, (False, True), (1, 2, 4), (1, 4), CONTROLS, 160, 30, 24, _ALL, 500_000, (2e-3, 1e-3),
    ),
    "quick": Split(
        _FAMILIES, (False, True), (1, 3), (3,), CONTROLS[::4], 120, 20, 6, _ALL, 500_000, (2e-3,),
    ),
    "tiny": Split(
        ("small-decoder-layernorm",), (False,), (1,), (), (), 28, 4, 5, _ALL, 1, (3e-3,),
    ),
}  # fmt: skip
"""The parts by name."""


@dataclass(frozen=True)
class Unit:
    """One training with the faults that strike it: a piece of work that is done or not done.

    Attributes:
        family: Name of the network.
        rounded: Whether products are rounded to bfloat16.
        ranks: Replicas.
        schedule: Learning rates, and the legitimate event.
        seed: Of weights, data and faults.
        strikes: Phases of faults, with the step at which they begin.
        faults: Number of them in each phase.
        patterns: From which they are drawn.
        control: Whether the run is there for its event.
    """

    family: str
    rounded: bool
    ranks: int
    schedule: Schedule
    seed: int
    strikes: tuple[tuple[str, int], ...]
    faults: int
    patterns: tuple[str, ...]
    control: bool

    @property
    def name(self) -> str:
        """A file name that changes when anything about the unit does."""
        digest = zlib.crc32(repr(self).encode())
        dtype = "bfloat16" if self.rounded else "float32"
        return f"{self.family}-{dtype}-{self.ranks}-{self.schedule.event.replace(' ', '_')}-{digest:08x}"

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def make_plan(name: str, seed: int = 0) -> list[Unit]:
    """All units of a split; those with faults first, and each network in turn, so that an early end leaves none out."""
    split = SPLITS[name]
    runs = [(ranks, event, False) for ranks in split.ranks for event in ("none", "resume", "rate jump")]
    runs += [(ranks, event, True) for ranks in split.control_ranks for event in split.controls]
    return [
        _unit(split, family, rounded, ranks, event, control, seed, number)
        for number, (ranks, event, control) in enumerate(runs)
        for family in split.families
        for rounded in split.roundings
    ]


def draw_faults(unit: Unit, *, places: int, weights: int) -> list[tuple[str, Fault]]:
    """The faults of a unit with their phases.

    Args:
        unit: Its seed decides.
        places: Number of sites.
        weights: Number of weight tensors.
    """
    random = np.random.default_rng([unit.seed, zlib.crc32(unit.name.encode())])
    drawn = []
    for phase, start in unit.strikes:
        targets = random.choice(list(TARGETS), size=unit.faults, p=list(TARGETS.values()))
        for target in map(str, targets):
            count = places if target == "site" else weights
            fault = draw_fault(
                random, target=target, places=count, ranks=unit.ranks, start=start, patterns=unit.patterns
            )
            drawn.append((phase, fault))
    return drawn


def _unit(
    split: Split, family: str, rounded: bool, ranks: int, event: str, control: bool, seed: int, number: int
) -> Unit:
    warm_up = 2 if event == "short warm-up" else split.warm_up
    peak = split.peaks[number % len(split.peaks)]
    schedule = Schedule(split.steps, warm_up, peak, event, split.steps // 2)
    strikes = () if control else tuple(
        (phase, max(3, round(share * split.steps)))
        for phase, (of, share) in PHASES.items()
        if of == event and round(share * split.steps) + HORIZON <= split.steps
    )  # fmt: skip
    own = zlib.crc32(f"{family} {rounded} {ranks} {event} {control}".encode()) % 100_000
    return Unit(
        family, rounded, ranks, schedule, split.seed + 1_000_000 * seed + own, strikes, split.faults, split.patterns,
        control,
    )  # fmt: skip
