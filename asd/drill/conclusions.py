"""Conclusions of a drill from its trainings: each part's state, what was found, and what to do."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any

from asd.drill.trainings import Trained
from asd.verdict import Level

HELD, NOT_HELD, TOLD, NOT_TRIED = "held", "did not hold", "told", "not tried"
AIM = 1.03
"""Most time of a step with detection to that without, of steps that take at least `_SHORT` seconds on a device."""
_SHORT = 0.1
HEADS = ("struck", "told", "own step", "refused", "named", "verdict", "end", "outcome")
"""Heads of the cells that `judge` fills in."""


@dataclass
class DrillPart:
    """One part of the result.

    Attributes:
        state: One of `HELD`, `NOT_HELD`, `TOLD` and `NOT_TRIED`.
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


def compare_numbers(all_bare: Sequence[Trained], all_watched: Sequence[Trained]) -> DrillPart:
    """Compares losses and weights of trainings without detection and with it."""
    part, bare = DrillPart(), [each for each in all_bare if each.ended or each.code == 0]
    watched = [each for each in all_watched if each.ended or (each.code == 0 and each.records)]
    if len(bare) < 2 or not watched:
        part.said.append("too few trainings ended within --minutes, or under detection")
        return part
    apart = [_distance(bare[i], each) for i in range(len(bare)) for each in bare[i + 1 :]]
    with_it = [min(_distance(each, other) for other in bare) for each in watched]
    part.numbers |= {"apart_without": max(apart), "apart_with": max(with_it), "trainings": len(bare) + len(watched)}
    seeded = bare[0].records[0]["seeded"]
    losses = "losses and weights" if _has_losses(bare[0]) else "weights"
    if max(apart) == 0:
        same = max(with_it) == 0
        part.said.append(
            f"{losses} of {len(watched)} trainings with detection are {'equal' if same else 'NOT equal'} bit for "
            f"bit to those of {len(bare)} without"
        )
    elif not _starts_alike(bare):
        part.state = TOLD
        why = "" if seeded else " (mindspore.set_seed is not called)"
        part.said.append(f"trainings without detection begin differently{why}, so nothing can be compared")
        part.advice = "Set a seed for weights and data, and run the drill again."
        return part
    else:
        same = max(with_it) <= 2 * max(apart)
        part.said.append(
            f"the device does not repeat its bits: trainings without detection are up to {max(apart):.2g} apart, "
            f"those with detection up to {max(with_it):.2g} from the nearest of them (relative; twice is allowed)"
        )
    part.state = HELD if same else NOT_HELD
    if not same:
        part.advice = "Detection has changed a number: send the JSON to the authors; use ASD_PROTECTION=document."
    return part


def compare_cost(bare: Sequence[Trained], watched: Sequence[Trained]) -> DrillPart:
    """Compares time and memory of trainings with and without detection, in pairs."""
    part = DrillPart()
    pairs = [pair for pair in zip(bare, watched, strict=False) if all(each.records for each in pair)]
    pairs = [pair for pair in pairs if all(_median(each, "seconds") for each in pair)]
    if not pairs:
        part.said.append("too few steps were made")
        return part
    rows = {"time of a step, s": [(_median(a, "seconds"), _median(b, "seconds")) for a, b in pairs]}
    for name, words in (("first", "time to the first step, s"), ("memory", "memory, bytes")):
        rows[words] = [(a.records[0][name], b.records[0][name]) for a, b in pairs]
    heads = ("without", "with", "ratio", "least", "most")
    part.rows = [["", *heads]]
    for words, values in rows.items():
        ratios = [b / a if a else inf for a, b in values]
        middle = [statistics.median(each) for each in zip(*values, strict=True)]
        part.rows.append([words, *middle, statistics.median(ratios), min(ratios), max(ratios)])
        part.numbers[words] = dict(zip(heads, part.rows[-1][1:], strict=True))
    _, usual, _, ratio, least, most = part.rows[1]
    part.said.append(f"a step takes {ratio:.3g} times as long, {least:.3g} to {most:.3g} in {len(pairs)} pairs")
    part.state, part.advice = HELD, ""
    if bare[0].records[0]["device"] == "CPU" or usual < _SHORT:
        part.state = TOLD
        part.said.append(f"this says nothing about the aim of {AIM}, for steps of at least {_SHORT} s on a device")
    elif least > AIM:
        part.state, part.advice = NOT_HELD, "Read costs.md; ASD_PROTECTION=document costs least."
    return part


def count_alarms(watched: Sequence[Trained]) -> DrillPart:
    """Counts the events of healthy steps."""
    part = DrillPart()
    first, second = (sum(len(each.of(level)) for each in watched) for level in (Level.ERROR, Level.WARNING))
    steps = sum(record["steps"] for each in watched for record in each.records)
    checks = sum(int(status.get("checks", 0)) for each in watched for status in each.statuses)
    problems = sum(event.kind == "problem" for each in watched for event in each.events)
    part.numbers |= {"first": first, "second": second, "problems": problems, "steps": steps, "checks": checks}
    part.said.append(
        f"{first} first-level and {second} second-level events, {problems} problems of the detector, in {checks:,} "
        f"checks of {steps:,} healthy steps"
    )
    part.state = NOT_HELD if first or problems or not checks else HELD
    if first:
        part.advice = (
            "A first-level event without an injected fault: run `asd selftest --seconds 600` on the device; if it "
            "passes, record values with ASD_OPTIONS=record:1 and run `asd tune`."
        )
    return part


def _distance(one: Trained, other: Trained) -> float:
    """Returns how far two trainings are apart: 0 where all bits are equal, else relative, at least the least number."""
    farthest = 0.0
    for a, b in zip(one.records, other.records, strict=False):
        if a["losses"] == b["losses"] and a["hash"] == b["hash"]:
            continue
        apart = 2.0**-149
        for name in ("losses", "sample"):
            known = [(x, y) for x, y in zip(a[name], b[name], strict=False) if x is not None and y is not None]
            size = sum(x * x for x, _ in known) or 1.0
            apart = max(apart, (sum((x - y) ** 2 for x, y in known) / size) ** 0.5)
        farthest = max(farthest, apart if isfinite(apart) else inf)
    return farthest if len(one.records) == len(other.records) else inf


def _has_losses(trained: Trained) -> bool:
    return any(loss is not None for loss in trained.records[0]["losses"])


def _starts_alike(trainings: Sequence[Trained]) -> bool:
    """Returns whether the first losses are as near as rounding of one network and one batch makes them."""
    firsts = [each.records[0]["losses"][0] for each in trainings]
    if None in firsts:
        return all(each.records[0]["seeded"] for each in trainings)
    return bool(max(firsts) - min(firsts) <= 2.0**-6 * abs(firsts[0]))


def _median(trained: Trained, name: str) -> float:
    values = trained.records[0][name]
    return statistics.median(values[len(values) // 4 :]) if values else 0.0


def judge(trained: Trained, clean: Trained, noise: float) -> list[str]:
    """Returns the cells of a fault's row below `HEADS`."""
    struck = [each for record in trained.records for each in record["struck"] if each["elements"]]
    if not trained.ended or not struck:
        return [
            "no" if trained.ended else f"code {trained.code}",
            *["-"] * 6,
            "not struck" if trained.ended else "failed",
        ]
    step, where = struck[0]["step"], struck[0]["where"]
    found = [event for level in (Level.ERROR, Level.WARNING) for event in trained.of(level) if event.step >= step]
    own = [event for event in found if event.step == step]
    level = "no" if not found else "first level" if found[0].level is Level.ERROR else "second level"
    named = any(event.checkpoint.endswith(where) or where.endswith(event.checkpoint) for event in found)
    verdicts = dict.fromkeys(event.verdict for event in trained.events if event.verdict and event.step >= step)
    is_clean, refused = _distance(trained, clean) <= noise, any(event.refused for event in found)
    yes = ["yes" if is_true else "no" for is_true in (own, refused, named)]
    if not found:
        outcome = "without effect" if is_clean else "missed" if _harms(trained, clean) else "harmless and missed"
    else:
        outcome = "healed" if is_clean else "refused" if any(event.refused for event in own) else "found"
    end = "as without the fault" if is_clean else "elsewhere"
    return [f"step {step}", level, *yes, ", ".join(verdicts) or "-", end, outcome]


def _harms(trained: Trained, clean: Trained) -> bool:
    """Returns whether the last quarter of the losses is more than 1 % above that of the training without the fault."""
    means = []
    for each in (trained, clean):
        losses = each.records[0]["losses"]
        last = losses[-max(1, len(losses) // 4) :]
        means.append(inf if None in last else statistics.fmean(last))
    return not means[0] - means[1] <= 0.01 * abs(means[1])
