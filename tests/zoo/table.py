"""Runs the zoo and writes the table: `python tests/zoo/table.py --help`."""

import argparse
import datetime
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path

from matrix import (
    CONFIGURATIONS,
    KINDS,
    MODES,
    PRECISIONS,
    REGROUPED,
    ROOT,
    Cell,
    Group,
    all_groups,
    run,
    seed_of_the_day,
)

from asd.cli.shared.machine import commit

EPILOG = """\
examples:
  python tests/zoo/table.py                          all of it; writes benchmarks/results/zoo.json and docs/zoo.md
  python tests/zoo/table.py --continue               the groups that the results lack, after Ctrl-C
  python tests/zoo/table.py --only moe2-graph        some of it; writes nothing (with --continue it does)"""
HEAD = """\
# The zoo

Small trainings of {kinds} kinds, each in graph mode and PyNative, in up to six precisions and three configurations,
on MindSpore {mindspore}. `make test-zoo` runs them and writes this page and `benchmarks/results/zoo.json`; a release
runs an eighth, chosen by the date (`ZOO_SEED`), and every cell that once failed (`make test-zoo-eighth`). To re-run
one cell: `python tests/zoo/table.py --only moe2-graph-float16 --seed {seed}`.

**{passed} of {cells} cells hold, {failed} fail.** {impossible} more are not judged: plain MindSpore fails there.

Of each cell there are two trainings of 20 steps, one healthy and one with a fault in step 18, and one of the same
without the package in effect. The fault makes one number of a gradient enormous. The [benchmark](benchmark.md)
measures faults in other places and small ones. The columns:

- **precision**: `float32`; `float16` by `to_float`; `amp.auto_mixed_precision` with O1, O2 and O3; `dynamic`, which
  is `to_float` with `amp.DynamicLossScaler`. `casts` and `castdense` have casts of their own and a loss scale of 4096
  besides.
- **configuration**: `document` is `ASD_PROTECTION=document`, `adaptive` has `ASD_RULE=adaptive ASD_ON_ANOMALY=skip`
  besides, `everything` is the default with `ASD_OPTIONS=confirm:0.5`, so that many steps are re-run, and
  `ASD_ON_ANOMALY=skip`.
- **equal**: losses, weights and optimizer state are those without the package, bit for bit. `not repeatable`: two
  trainings without the package differ too. `regrouped`: a compiled graph in half precision
  whose updates can be refused. It ends with other bits without the package too, if an operator that checks nothing
  is put around each product and after each layer that has one. The log reports it at the start (`rounding`), see
  [limits](limits.md).
- **alarms**: first-level alarms and refused updates of the healthy trainings; in brackets those of second level.
- **found**: the fault was found in its step; without `skip` the training ended there with the weights of the step
  before. `overflow`: the fault made float16 overflow under a dynamic loss scale, which is reported as a warning and
  skipped by the scaler. `skipped`: the same in a network without norms, where only the gradients at the
  optimizer are checked. `warned`: gradient clipping made the one element small and all others tiny,
  which a confirmation re-run checks where it is on. `hidden`: clipping made them small, but not suspiciously tiny.
  `harmless`: the training ended with the same bits as without the fault, for example in an expert that no token
  had reached. `not checked`: nothing of the network is checked there, and the log reports it.
- **healed**: the step was re-run, and the training ended with the bits of the healthy one. Only `everything` has
  confirmation re-runs; `logged`: it could not re-run the step, and the log has the reason.
- **run**: day and commit, with `+` if files differed from it. Cells with the same answers share a line.
"""


def answers(cell: Cell) -> tuple[str, ...]:
    """What the table says of a cell, but for its counts."""
    if not cell["failures"] and "equal" not in cell:
        return ("", "", "", "")
    equal = {True: "yes", False: "**no**", None: "regrouped" if REGROUPED in cell["note"] else "not repeatable"}
    equal = equal[cell.get("equal")] if "equal" in cell else "?"
    alarms = "?" if "first_level" not in cell else "0" if not cell["first_level"] + cell["refused"] else "**false**"
    found = cell.get("found", "?")
    found = {True: "yes", False: "**no**", None: "not checked"}.get(found, found)
    healed = cell.get("healed", "?")
    healed = {True: "yes", False: "**no**", None: "", "no, and it is said": "logged"}.get(healed, healed)
    return equal, alarms, found, healed


def lines(cells: Sequence[Cell]) -> Iterator[str]:
    """The table, cells with the same answers in one line."""
    yield "| kind | configuration | mode | precision | equal | alarms | found | healed | run |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for kind in KINDS:
        for configuration in CONFIGURATIONS:
            rows: dict[tuple[str, ...], dict[str, list[Cell]]] = {}
            for cell in cells:
                if (cell["kind"], cell["configuration"]) == (kind, configuration) and not is_impossible(cell):
                    rows.setdefault((*answers(cell), cell.get("run", "")), {}).setdefault(cell["mode"], []).append(cell)
            for answer, modes in rows.items():
                for mode, chosen in _joined(modes):
                    second = sum(each.get("second_level", 0) for each in chosen)
                    names = ", ".join(dict.fromkeys(each["precision"] for each in chosen))
                    equal, alarms, *more = answer
                    alarms += f" ({second})" if second else ""
                    yield f"| {' | '.join((kind, configuration, mode, names, equal, alarms, *more))} |"


def _joined(modes: dict[str, list[Cell]]) -> Iterator[tuple[str, list[Cell]]]:
    precisions = {tuple(each["precision"] for each in chosen) for chosen in modes.values()}
    if len(modes) == len(MODES) and len(precisions) == 1:
        yield "both", [each for chosen in modes.values() for each in chosen]
    else:
        yield from modes.items()


def is_impossible(cell: Cell) -> bool:
    """Whether plain MindSpore does not train it."""
    return cell["note"].startswith("plain MindSpore fails")


def page(cells: Sequence[Cell], seed: int, missing: int = 0) -> str:
    """docs/zoo.md."""
    impossible = [each for each in cells if is_impossible(each)]
    failed = [each for each in cells if each["failures"]]
    counts = {"passed": len(cells) - len(failed) - len(impossible), "cells": len(cells) - len(impossible)}
    counts |= {"kinds": len(KINDS), "failed": len(failed), "impossible": len(impossible)}
    head = HEAD.format(mindspore=version("mindspore"), seed=seed, **counts)
    if missing:
        head += f"\n**{missing} groups have not been run yet** (`python tests/zoo/table.py --continue`).\n"
    parts = [head, *lines(cells)]
    if failed:
        parts += ["", "## Cells that fail", "", "| cell | what is wrong |", "|---|---|"]
        parts += [f"| {name_of(each)} | {'; '.join(map(_plain, each['failures']))} |" for each in failed]
    if impossible:
        parts += ["", "## Where plain MindSpore fails", "", "| trainings | its error |", "|---|---|"]
        by_note: dict[str, list[str]] = {}
        for each in impossible:
            names = by_note.setdefault(each["note"].removeprefix("plain MindSpore fails: "), [])
            names.append(f"{each['kind']}-{each['mode']}-{each['precision']}")
        parts += [f"| {', '.join(dict.fromkeys(names))} | {_plain(note)} |" for note, names in by_note.items()]
    return "\n".join(parts) + "\n"


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")[:300]


def name_of(cell: Cell) -> str:
    """As in `once_failed.txt`."""
    return f"{cell['kind']}-{cell['mode']}-{cell['precision']}-{cell['configuration']}"


def run_all(groups: Sequence[Group], keep: Callable[[list[Cell]], None]) -> list[Cell]:
    """Runs two at a time, reports how far it is, and hands the cells of each to `keep` as they come."""
    began, cells = time.monotonic(), list[Cell]()
    with ThreadPoolExecutor(2) as pool:
        futures = {pool.submit(run, group): group for group in groups}
        for done, future in enumerate(as_completed(futures), 1):
            found, minutes = future.result(), (time.monotonic() - began) / 60
            wrong = [f"{each['configuration']}: {text}" for each in found for text in each["failures"]]
            line = "; ".join(wrong) or found[0]["note"] or "holds"
            print(f"{done}/{len(groups)}, {minutes:.1f} min: {futures[future]}: {line}", file=sys.stderr, flush=True)
            keep(found)
            cells += found
    return cells


def main() -> int:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(
        prog="python tests/zoo/table.py",
        description=__doc__.split(":")[0],
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=seed_of_the_day(), help="of faults (default: ZOO_SEED or date)")
    parser.add_argument("--only", default="", metavar="WORDS", help="groups whose name contains this")
    parser.add_argument("--continue", dest="go_on", action="store_true", help="run what --json lacks, with its seed")
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks/results/zoo.json", metavar="FILE")
    parser.add_argument("--markdown", type=Path, default=ROOT / "docs/zoo.md", metavar="FILE")
    options = parser.parse_args()
    results = Results(options.json, options.markdown, options.seed)
    if options.go_on:
        options.seed = results.load()
    groups = all_groups(options.seed)
    chosen = [group for group in groups if options.only in str(group) and not (options.go_on and results.has(group))]
    if options.go_on and not chosen:
        parser.error(f"{options.json} has all groups")
    if not chosen:
        parser.error(f"--only must be part of a name such as {groups[0]}")
    print(f"ZOO_SEED={options.seed}: {len(chosen)} groups", flush=True)
    writes = options.go_on or not options.only
    cells = run_all(chosen, results.add if writes else lambda _: None)
    counts = Counter("fails" if each["failures"] else ("holds", "impossible")[is_impossible(each)] for each in cells)
    print(", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    return int("fails" in counts)


class Results:
    """The two files: written again after each group, for all of them take hours; the seed is that of the faults."""

    def __init__(self, file: Path, markdown: Path, seed: int) -> None:
        self.file, self.markdown, self.seed = file, markdown, seed
        self._cells: dict[str, Cell] = {}
        self._run = f"{datetime.date.today()} {commit()}"

    def load(self) -> int:
        """Takes over what is there; returns its seed."""
        if not self.file.exists():
            raise SystemExit(f"{self.file} is not there: nothing to go on with.")
        kept = json.loads(self.file.read_text())
        if kept["mindspore"] != version("mindspore"):
            raise SystemExit(f"{self.file} is of MindSpore {kept['mindspore']}, this is {version('mindspore')}.")
        self.seed = int(kept["seed"])
        self._cells = {name_of(cell): cell for cell in kept["cells"]}
        return self.seed

    def has(self, group: Group) -> bool:
        """Whether all cells of a group are there."""
        names = (f"{group.kind}-{group.mode}-{group.precision}-{each}" for each in group.configurations)
        return all(name in self._cells for name in names)

    def add(self, cells: Sequence[Cell]) -> None:
        """Takes the cells of one more group and writes both files."""
        self._cells |= {name_of(cell): {"run": self._run, **cell} for cell in cells}
        groups = all_groups(self.seed)
        names = [f"{group.kind}-{group.mode}-{group.precision}-{each}" for group in groups for each in CONFIGURATIONS]
        known = [self._cells[name] for name in names if name in self._cells]
        oldest = min(cell["run"] for cell in known).split()[-1]
        result = {"mindspore": version("mindspore"), "seed": self.seed, "precisions": PRECISIONS, "cells": known}
        result = {"measured": {"commit": oldest, "command": "make test-zoo"}, **result}
        _write(self.file, json.dumps(result, indent=1) + "\n")
        _write(self.markdown, page(known, self.seed, missing=sum(not self.has(group) for group in groups)))


def _write(file: Path, text: str) -> None:
    """Never half of it, whenever the program is stopped."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit("interrupted.") from None
