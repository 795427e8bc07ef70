"""Conclusions of a drill from its trainings: each part's state, what was found, and what to do."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import inf, isfinite, isnan
from typing import Any

from asd.drill.trainings import HUNG, Trained
from asd.verdict import Level

HELD, NOT_HELD, SHOWN, NOT_TRIED = "held", "did not hold", "shown", "not tried"
AIM = 1.03
"""Most time of a step with detection to that without, of steps that take at least `_SHORT` seconds on a device."""
_SHORT, _MOST_EVENTS = 0.1, 16
_ENOUGH = 3
"""Trainings of each kind that tell a change from bits that vary, at least."""
HEADS = ("injected", "reported", "in its step", "refused", "named", "verdict", "weights in the end")
"""Heads of the cells that `judge` fills in, before the outcome."""
OUTCOMES = {
    "healed": "reported, and the weights are those of a training without the fault",
    "refused": "the update of its step was refused",
    "found": "reported after an update with it",
    "without effect": "not reported; the weights are those of a training without the fault",
    "harmless and missed": "not reported; the last losses are not more than 1 % higher",
    "missed": "not reported, and the last losses are more than 1 % higher: limits.md has the kinds that are not seen",
    "unseen": "not reported; its harm is not known, as trainings begin differently (set a seed for weights and data) "
    "or no losses are known (pass them to StepMonitor.step)",
    "not struck": "the training has no such tensor, the fault changed no number, or one call made all steps (pass more "
    "--steps than a call with sunk data makes)",
    "out of time": "the training did not end within --minutes",
    "failed": "the training hung or ended with an error, whose last lines are below: send the JSON",
}
"""Meanings of the outcomes."""


@dataclass
class DrillPart:
    """One part of the result.

    Attributes:
        state: One of `HELD`, `NOT_HELD`, `SHOWN` and `NOT_TRIED`.
        said: Findings in sentences, without data of the training.
        advice: What to do; empty for nothing.
        numbers: The same for programs.
        rows: Rows of a table, the first one being its head.
        private: Lines for the page alone, as they may hold data of the training.
    """

    state: str = NOT_TRIED
    said: list[str] = field(default_factory=list)
    advice: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)
    rows: list[list[Any]] = field(default_factory=list)
    private: list[str] = field(default_factory=list)


def compare_numbers(all_bare: Sequence[Trained], all_watched: Sequence[Trained], *, in_place: bool) -> DrillPart:
    """Compares losses and weights of trainings without detection and with it; `in_place` if they keep their files."""
    part, bare = DrillPart(), [each for each in all_bare if each.code == 0 and each.records]
    watched = [each for each in all_watched if each.code == 0 and each.records]
    if len(bare) < 2 or not watched:
        part.said.append("too few trainings ended within --minutes, or under detection")
        return part
    apart, spread = _farthest(bare), _farthest(watched)
    with_it = [min(_distance(each, other) for other in bare) for each in watched]
    part.numbers |= {"apart_without": apart, "apart_with": max(with_it), "trainings": len(bare) + len(watched)}
    losses, seeded = bare[0].records[0]["losses"], all(each.records[0]["seeded"] for each in bare)
    compared = " and ".join(["losses"] * (set(losses) != {None}) + ["weights"] * bool(bare[0].records[0]["sample"]))
    if not compared:
        part.state = SHOWN
        part.said.append("nothing can be compared: no weights are known, and no losses (pass them to StepMonitor.step)")
        return part
    if apart == 0:
        same = max(with_it) == 0
        part.state = HELD if same else NOT_HELD
        part.said.append(
            f"{compared} of {len(watched)} trainings with detection are {'equal' if same else 'NOT equal'} bit for "
            f"bit to those of {len(bare)} without"
        )
    elif in_place or not seeded or not _starts_alike(bare) or apart == inf:
        part.state = SHOWN
        why = "they may continue from files of one another" if in_place else "mindspore.set_seed is not called"
        why = f" ({why})" if in_place or not seeded else ""
        how = "begin differently" if why or apart < inf else "are infinitely far apart, as by NaN in one of them"
        part.said.append(f"trainings without detection {how}{why}, so nothing can be compared")
        part.advice = (
            "Set a seed for weights and data, begin from no checkpoint of a run before, and run the drill again."
        )
        return part
    else:
        far = [each for each in with_it if each > 2 * apart]
        part.said.append(
            f"device or data do not repeat their bits: trainings without detection are up to {apart:.2g} apart, those "
            f"with detection {spread:.2g}, and up to {max(with_it):.2g} from the nearest one without (relative)"
        )
        # One last bit decides at a ReLU or a maximum: trainings come in clusters, with detection and without.
        is_apart = min(len(bare), len(watched)) >= _ENOUGH and min(with_it) > 2 * max(apart, spread)
        part.state = HELD if not far else NOT_HELD if is_apart or inf in far else SHOWN
        if part.state == SHOWN:
            part.said.append(
                f"{len(far)} of {len(watched)} with detection are more than twice as far from those without as these "
                "are apart, which may be chance"
            )
            pairs = 2 * max(len(bare), _ENOUGH)
            part.advice = f"Run it again with --pairs {pairs}: what detection changes, it changes in all trainings."
    part.numbers["noise"] = 2 * apart
    if part.state == NOT_HELD:
        part.advice = "Detection has changed a number: send the JSON to the authors; use ASD_PROTECTION=document."
    return part


def compare_cost(bare: Sequence[Trained], watched: Sequence[Trained]) -> DrillPart:
    """Compares time and memory of trainings with and without detection, in pairs."""
    part = DrillPart()
    pairs = [pair for pair in zip(bare, watched, strict=False) if all(map(_median, pair))]
    if not pairs:
        part.said.append("too few steps were made")
        return part
    rows = {"time of a step, s": [(_median(a), _median(b)) for a, b in pairs]}
    for name, words in (("first", "time to the first step, s"), ("memory", "memory, bytes")):
        rows[words] = [(a.records[0][name], b.records[0][name]) for a, b in pairs]
    heads = ("without", "with", "ratio", "least", "most")
    part.rows = [["", *heads]]
    for words, values in rows.items():
        ratios = [b / a if a else inf for a, b in values]
        middle = [statistics.median(each) for each in zip(*values, strict=True)]
        part.rows.append([words, *middle, middle[1] / middle[0] if middle[0] else inf, min(ratios), max(ratios)])
        part.numbers[words] = dict(zip(heads, part.rows[-1][1:], strict=True))
    _, usual, _, ratio, least, most = part.rows[1]
    part.said.append(f"a step takes {ratio:.3g} times as long, {least:.3g} to {most:.3g} in {len(pairs)} pairs")
    part.state = HELD
    if bare[0].records[0]["device"] == "CPU" or usual < _SHORT:
        part.state = SHOWN
        part.said.append(f"this says nothing about the aim of {AIM}, for steps of at least {_SHORT} s on a device")
    elif ratio > AIM:
        part.state, part.advice = NOT_HELD, "Read costs.md; ASD_PROTECTION=document costs least."
    return part


def count_alarms(watched: Sequence[Trained]) -> DrillPart:
    """Counts the events of healthy steps."""
    part = DrillPart()
    first, second = (sum(len(each.of(level)) for each in watched) for level in (Level.ERROR, Level.WARNING))
    steps = sum(record["steps"] for each in watched for record in each.records)
    checks = sum(int(status.get("checks", 0)) for each in watched for status in each.statuses)
    problems = sum(event.kind == "problem" for each in watched for event in each.events)
    reasons = [f"step {event.step}, {event.checkpoint}: {event.reason}" for each in watched for event in each.events]
    part.private = list(dict.fromkeys(reasons))[:_MOST_EVENTS]
    part.numbers |= {"first": first, "second": second, "problems": problems, "steps": steps, "checks": checks}
    part.said.append(
        f"{first} first-level and {second} second-level events, {problems} problems of the detector, in {checks:,} "
        f"checks of {steps:,} healthy steps"
    )
    part.state = NOT_HELD if first or problems or (steps and not checks) else HELD if steps else NOT_TRIED
    if first:
        part.advice = (
            "A first-level event without an injected fault: run `asd selftest --seconds 600` on the device; if it "
            "passes, record values with ASD_OPTIONS=record:1 and run `asd tune`."
        )
    return part


def _farthest(trainings: Sequence[Trained]) -> float:
    """Returns how far these trainings are apart at most."""
    return max((_distance(one, other) for one, other in combinations(trainings, 2)), default=0.0)


def _distance(one: Trained, other: Trained) -> float:
    """Returns how far two trainings are apart: 0 where all bits are equal, else relative, at least the least number."""
    farthest = 0.0
    for a, b in zip(one.records, other.records, strict=False):
        pairs = (zip(a[name], b[name], strict=False) for name in ("losses", "sample"))
        losses, sample = ([pair for pair in each if None not in pair and not all(map(isnan, pair))] for each in pairs)
        if a["hash"] == b["hash"] and all(x == y for x, y in losses):
            continue
        apart = 2.0**-149
        for known in (losses, sample):
            size = sum(x * x for x, _ in known) or 1.0
            far = (sum((x - y) ** 2 for x, y in known) / size) ** 0.5
            apart = max(apart, far) if isfinite(far) else inf
        farthest = max(farthest, apart)
    return farthest if len(one.records) == len(other.records) else inf


def _starts_alike(trainings: Sequence[Trained]) -> bool:
    """Returns whether the first losses, if known, are as near as rounding of one network and one batch makes them."""
    firsts = [each.records[0]["losses"][0] for each in trainings]
    return None in firsts or max(firsts) - min(firsts) <= 2.0**-8 * abs(firsts[0])


def _median(trained: Trained) -> float:
    values = trained.records[0]["seconds"] if trained.records else []
    return statistics.median(values[len(values) // 4 :]) if values else 0.0


def judge(trained: Trained, healthy: Sequence[Trained], noise: float) -> list[str]:
    """Returns the cells of a fault's row below `HEADS`; `noise` is nan where trainings begin differently."""
    struck = [each for record in trained.records for each in record["struck"] if each["elements"]]
    step, where = (struck[0]["step"], struck[0]["where"]) if struck else (inf, "")
    found = [event for level in (Level.ERROR, Level.WARNING) for event in trained.of(level) if event.step >= step]
    if not struck or trained.code == HUNG or not (trained.ended or found):  # an event may end it
        outcome = "not struck" if trained.ended else "out of time" if trained.code is None else "failed"
        return ["no" if trained.code in (0, None) else f"code {trained.code}", *["-"] * 6, outcome]
    own = [event for event in found if event.step == step]
    level = "no" if not found else "first level" if found[0].level is Level.ERROR else "second level"
    named = any(event.checkpoint.endswith(where) or where.endswith(event.checkpoint) for event in found)
    verdicts = dict.fromkeys(event.verdict for event in trained.events if event.verdict and event.step >= step)
    is_clean = trained.ended and min(_distance(trained, each) for each in healthy) <= noise
    yes = ["yes" if each else "no" for each in (own, any(event.refused for event in found), named)]
    if found:
        outcome = "healed" if is_clean else "refused" if any(event.refused for event in own) else "found"
    elif is_clean:
        outcome = "without effect"
    else:
        harms = None if isnan(noise) else _harms(trained, healthy)
        outcome = "unseen" if harms is None else "missed" if harms else "harmless and missed"
    end = "as without it" if is_clean else "not comparable" if isnan(noise) else "different"
    return [f"step {step}", level, *yes, ", ".join(verdicts) or "-", end, outcome]


def _harms(trained: Trained, healthy: Sequence[Trained]) -> bool | None:
    """Returns whether the last quarter of the losses is more than 1 % above that of each healthy training, if known."""
    if any(None in each.records[0]["losses"] for each in (trained, *healthy)):
        return None

    def last(each: Trained) -> float:
        losses = each.records[0]["losses"]
        return statistics.fmean(losses[-max(1, len(losses) // 4) :])

    most = max(map(last, healthy))
    return not last(trained) - most <= 0.01 * abs(most)
