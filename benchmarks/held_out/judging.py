"""What a training with detection found, from what it leaves to a user; counts, the table, and what got worse."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks._wilson import per_million, wilson
from benchmarks.held_out.faults import LONG, MANY

COLUMNS = {"own": "own step, refused", "in_20": "within 20", "in_200": "within 200"}
MORE = {"not_refused": "told, not refused", "named": "device named"}
"""Counts beside the shares: faults whose first event refused nothing, and those with the right name."""


def events(folder: Path) -> list[dict[str, Any]]:
    """The events of a run folder."""
    lines = [
        json.loads(line) for path in sorted(folder.glob("events-*.jsonl")) for line in path.read_text().splitlines()
    ]
    return [line.get("data", line) for line in lines]


def checks(folder: Path) -> int:
    """How many values were judged, by the status of the run folder."""
    return sum(int(json.loads(path.read_text())["checks"]) for path in folder.glob("status-rank*.json"))


def found(told: Sequence[dict[str, Any]], strike: int | None, device: str) -> dict[str, Any]:
    """Whether and when a fault was found.

    Args:
        told: Events of the run folder.
        strike: The step of the first wrong result, or None when there was none.
        device: The only device that may be named; "" where it is none's fault.
    """
    first = [event for event in told if event["level"] == "first"]
    alarms = sorted((event["step"], not (event["refused"] or event.get("healed"))) for event in first)
    early = [step for step, _ in alarms if strike is None or step < strike]
    after = [(step - strike, refused_not) for step, refused_not in alarms if strike is not None and step >= strike]
    late = after[0][0] if after else None
    named = {event["device"] for event in first}
    return {
        "alarms_too_early": len(early),
        "steps": late,
        "own": bool(after and late == 0 and not after[0][1]),
        "in_20": late is not None and late < 20,
        "in_200": late is not None and late < 200,
        "not_refused": bool(after and after[0][1]),
        "named": device in named,
        "named_wrongly": sorted(named - {device, "", "unknown"}),
    }


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """What no two rows have alike."""
    about = row.get("number"), row.get("ranks", 1), row.get("noise", 0), row.get("settings", "")
    return *about, row["training"], row["fault"]


def group_of(row: dict[str, Any]) -> str:
    """Mode and kind, and how many ranks, which noise and settings if not one, none and those that are shipped."""
    ranks, noise, settings = row.get("ranks", 1), row.get("noise", 0), row.get("settings", "")
    more = f", {ranks} ranks" * (ranks > 1) + ", noise" * bool(noise) + f", {settings}" * bool(settings)
    return f"{row['mode']} {row['kind']}{more}"


def summary(rows: Sequence[dict[str, Any]], healthy: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of each mode and kind how many struck, harmed and were found, and the alarms of healthy trainings."""
    groups: dict[str, Any] = {}
    for name in sorted({group_of(row) for row in rows}):
        some = [row for row in rows if group_of(row) == name]
        run = [row for row in some if "own" in row]
        groups[name] = {
            "drawn": len(some),
            "struck": sum(row["strikes"] > 0 for row in some),
            "harmful": sum(row["harmful"] for row in some),
            "run": len(run),
            **{
                each: {"found": (hits := sum(row[each] for row in run)), "wilson": wilson(hits, len(run))}
                for each in COLUMNS
            },
            # A run of a version before may not have counted it.
            **{each: sum(row[each] for row in run) for each in MORE if all(each in row for row in run)},
            **({"applied": sum(row["applied"] for row in run)} if any("applied" in row for row in run) else {}),
        }
    alarms, number = (sum(each[what] for each in healthy) for what in ("alarms", "checks"))
    return {
        "groups": groups,
        "aims": {
            name: share
            for mode, ranks in sorted({(row["mode"], row.get("ranks", 1)) for row in rows})
            for name, share in _aims(rows, mode, ranks)
        },
        "healthy": {
            "trainings": len(healthy),
            "steps": sum(each["steps"] for each in healthy),
            "checks": number,
            "alarms": alarms,
            "per_million": per_million(alarms, number) if number else None,
            "other_bits": [each["training"] for each in healthy if not each["equal"]],
        },
        "alarms_too_early": sum(row.get("alarms_too_early", 0) for row in rows),
        "named_wrongly": sum(len(row.get("named_wrongly", ())) for row in rows),
    }


def _aims(rows: Sequence[dict[str, Any]], mode: str, ranks: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the groups do not tell apart, each with its share."""
    run = [row for row in rows if (row["mode"], row.get("ranks", 1)) == (mode, ranks) and "own" in row]
    run, more = [row for row in run if not row.get("settings")], f", {ranks} ranks" * (ranks > 1)
    once, links = ([row for row in run if row["kind"] == kind] for kind in ("single", "link"))
    for words, hits in (
        ("single, own step, where the loss suffers", [row["own"] for row in once if _loss_suffers(row)]),
        ("single, own step, where only weights do", [row["own"] for row in once if not _loss_suffers(row)]),
        (
            f"intermittent, within {MANY} wrong results or {LONG:,} steps",
            [row["steps"] is not None for row in run if row["kind"] == "intermittent"],
        ),
        ("core, within 60", [_within(row, 60) for row in run if row["kind"] == "core"]),
        (
            "link, own step, zeros and stale parts",
            [row["own"] for row in links if "shifted" not in row["drawn"]["what"]],
        ),
        ("link, one element, within 16", [_within(row, 16) for row in links if "shifted" in row["drawn"]["what"]]),
    ):
        if hits:
            yield f"{mode} {words}{more}", {"found": sum(hits), "of": len(hits), "wilson": wilson(sum(hits), len(hits))}


def _within(row: dict[str, Any], steps: int) -> bool:
    return row["steps"] is not None and row["steps"] < steps


def _loss_suffers(row: dict[str, Any]) -> bool:
    return row["loss"] is None or row["loss"] > 0.01


def rows_of(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """The table's cells: of each group struck, harmful, run with detection, and the shares found."""
    rows = []
    for name, group in found["groups"].items():
        shares = []
        for each in COLUMNS:
            low, high = group[each]["wilson"]
            shares.append(
                f"{group[each]['found']} of {group['run']} ({low:.0%} to {high:.0%})" if group["run"] else "-"
            )
        more = [str(group.get(each, "-")) for each in MORE]
        rows.append((name, f"{group['struck']} of {group['drawn']}", str(group["harmful"]), *shares, *more))
    return rows


def table(result: dict[str, Any]) -> str:
    """For a terminal."""
    head = ("mode, kind", "struck", "harmful", *COLUMNS.values(), *MORE.values())
    rows = [head, *rows_of(result)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += [f"{name}: {aim['found']} of {aim['of']}" for name, aim in result["aims"].items()]
    lines += [
        f"{name}: {group['applied']} of {group['run']} huge gradients were applied"
        for name, group in result["groups"].items()
        if "applied" in group
    ]
    quiet, other = result["healthy"], ", ".join(result["healthy"]["other_bits"]) or "none"
    lines.append(
        f"healthy: {quiet['alarms']} first-level alarms in {quiet['checks']:,} checks and {quiet['steps']:,} steps of "
        f"{quiet['trainings']} trainings; before a fault {result['alarms_too_early']}; devices named wrongly "
        f"{result['named_wrongly']}; trainings with other bits, or that ended early: {other}"
    )
    return "\n".join(lines)


def _hits(row: dict[str, Any]) -> dict[str, Any]:
    if row.get("noise"):
        return {COLUMNS["in_200"]: row["in_200"]}
    hits = {words: row[each] for each, words in COLUMNS.items()}
    return hits | {MORE["named"]: row.get("named"), "at all": row["steps"] is not None}


def regressions(now: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """What is worse than it was, in sentences: faults that were found and are not, and what a healthy training forbids.

    Each fault is compared with itself. With noise the step in which it is found varies, so only whether it is found.
    """
    known = {key_of(row): row for row in before["rows"] if "own" in row}
    run = [row for row in now["rows"] if "own" in row]
    pairs = [(row, known[key_of(row)]) for row in run if key_of(row) in known]
    pairs = [(row, was) for row, was in pairs if row["drawn"] == was["drawn"]]  # a version before drew other faults
    broken = [] if run else ["No fault was run with detection, so nothing is compared."]
    for name in sorted({group_of(row) for row in run} - {group_of(row) for row, _ in pairs}):
        broken.append(f"{name}: none of these faults is in the result to compare with; merge a run of them into it.")
    for row, was in pairs:
        hits = _hits(row)
        if lost := [words for words, hit in _hits(was).items() if hit and not hits[words]]:
            fault = f"{row['fault']} of {row['training']}"
            broken.append(f"{group_of(row)}: {fault} is no longer found as it was: {', '.join(lost)}.")
    alarms = now["healthy"]["alarms"] + now["alarms_too_early"]
    if alarms:
        broken.append(f"{alarms} first-level alarms without a fault; valid is none.")
    if now["named_wrongly"]:
        broken.append(f"{now['named_wrongly']} devices are named that are right; valid is none.")
    broken += [f"{each} has other losses with detection, or ended early." for each in now["healthy"]["other_bits"]]
    return broken
