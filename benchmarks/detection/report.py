"""From scores to tables and JSON: every proportion with its Wilson interval, the worst stratum beside each pool."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from asd.rundir.disk import write_whole
from benchmarks.detection.detectors import COMPOSITES, DETECTORS
from benchmarks.detection.measure import (
    CHECKSUMS,
    REPLAY,
    SAMPLED,
    WITH_CHECKSUM,
    Row,
    chaos,
    checks_of,
    controls,
    detector,
    harm,
    rows_of,
    table,
)
from benchmarks.detection.sensitivity import sensitivity
from benchmarks.detection.targets import targets_of

__all__ = ["make_report", "print_report", "write_report"]


def make_report(units: list[Row], split: str, seed: int, missing: int) -> Row:
    """Everything the benchmark says, ready for JSON."""
    rows = [row for unit in units for row in rows_of(unit)]
    real = [row for row in rows if not row["no_op"]]
    names = [*COMPOSITES, *DETECTORS, *CHECKSUMS.values(), WITH_CHECKSUM, SAMPLED, REPLAY]
    return {
        "benchmark": "detection",
        "split": split,
        "seed": seed,
        "versions": _versions(),
        "trainings": len(units),
        "trainings_missing": missing,
        "injections": len(rows),
        "no_ops_removed": len(rows) - len(real),
        "harmful": sum(row["harmful"] for row in real),
        "clean_branches_bit_identical": not any(unit["replayed"]["differing"] for unit in units),
        "recording_cpu_seconds": round(sum(unit["cpu_seconds"] for unit in units)),
        "chaos_floor": chaos(real),
        "clean_checks": checks_of(units, "warm_up") + checks_of(units, "later"),
        "detectors": {name: detector(name, real, units) for name in names},
        "checksum_on_clean_products": _sums(units, "products", *CHECKSUMS),
        "check_on_clean_norms": _sums(units, "norms", "wrong_norms"),
        "checksum_on_clean_means": _sums(units, "means", "wrong_means"),
        "made_again_by_second_looks": {key: sum(unit["made_again"][key] for unit in units) for key in ("steps", "of")},
        "harm_by_stratum": harm(real),
        "controls": controls(units),
        "sensitivity": sensitivity(seed),
        "targets": targets_of(real, units),
        "strata": table(names, real, units),
    }


def print_report(report: Row) -> None:
    """The tables."""
    print(
        f"{report['injections']} injections, {report['no_ops_removed']} of them changed nothing and are left out; "
        f"{report['harmful']} harmful; {report['clean_checks']} clean checks in {report['trainings']} trainings"
        + (f" ({report['trainings_missing']} trainings are missing)" if report["trainings_missing"] else "")
        + f"; clean branches bit-identical: {report['clean_branches_bit_identical']}."
    )
    print(
        "\nharmful faults found, single events | persistent (3 steps and more); worst stratum; false alarms per million"
    )
    head = (
        f"{'detector':<32} {'own step':>20} {'worst':>7} {'in 20':>7} | {'own step':>20} {'worst':>7} {'in 20':>7} | "
    )
    print(head + f"{'all':>6} {'first level':>17} {'second':>9}")
    for name, row in report["detectors"].items():
        parts = [_cells(row[group]) for group in ("single", "persistent")]
        alarms = row["false_alarms"]
        tail = f"{alarms['first_later'][0]:>8.1f} <={alarms['first_later'][1]:>6.1f} {alarms['second_later'][0]:>9.1f}"
        print(f"{name:<32} {parts[0]} | {parts[1]} | {_percent(row['all_changes'])} {tail}")
    print("\nfound in time: rank, layer, operator named; taken for (faults | flagged steps of events); cost a check")
    for name, row in report["detectors"].items():
        right = row["named"]
        parts = "  ".join(f"{right[key]['share']:.3f} n{right[key]['of']:<4}" for key in ("rank", "layer", "operator"))
        causes = [" ".join(f"{key} {n}" for key, n in row["told"][of].items()) for of in row["told"]]
        took = row["microseconds_a_check"]
        print(
            f"{name:<32} {parts}  {causes[0] or '-'} | {causes[1] or '-'}; {'-' if took is None else f'{took:.1f} us'}"
        )
    print("\nevents without a fault: runs, first-level alarms, flagged steps, of these replayed, isolations after it")
    for name, row in report["controls"].items():
        print(f"  {name:<16} " + " ".join(f"{row[k]:>7}" for k in list(row)[:5]))
    print("\ntargets: reached or missed")
    for target in report["targets"]:
        print(
            f"  {'met   ' if target['met'] else 'MISSED'} {target['name']}: {target['measured']} ({target['wanted']})"
        )


def write_report(report: Row, path: Path) -> None:
    """Writes the JSON, whole or not at all."""
    strata = json.dumps(report["strata"], separators=(",", ":"), allow_nan=False, default=float)
    head = json.dumps({**report, "strata": None}, indent=1, allow_nan=False, default=float)
    write_whole(path, head.replace('"strata": null', f'"strata": {strata}') + "\n")


def _cells(row: Row) -> str:
    own, worst = row["own_steps"], row["worst_stratum"]
    text = f"{own['share']:.2f} ({own['low']:.2f}-{own['high']:.2f}) n{own['of']:<3}"
    return f"{text:>20} {worst['share'] if worst else float('nan'):>7.2f} {row['within']['20']['share']:>7.2f}"


def _percent(share: Row) -> str:
    return f"{share['share']:>6.3f}"


def _sums(units: list[Row], *keys: str) -> Row:
    """What checksums said of clean trainings; older recordings lack some."""
    return {key: sum(unit["checksums"].get(key, 0) for unit in units) for key in keys}


def _versions() -> Row:
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in ("mindspore", "numpy", "mindspore-asd"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found
