"""`python -m benchmarks.mutation`, or `make mutation`."""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.detection.wilson import wilson
from benchmarks.mutation.mutants import Mutant, mutants
from benchmarks.mutation.tested import (
    Collected,
    Test,
    collect,
    fork,
    measure,
    run_function,
    run_import,
    tests_of,
    warm_up,
)

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "benchmarks" / "results" / "mutation.json"
JUDGED = Path(__file__).with_name("survivors.json")
MONITOR = ("tests/asd/test_monitor.py", "tests/asd/test_monitor_kinds.py", "tests/asd/test_docstrings.py")
ROOMS = {
    "asd/rules": ("tests/asd/rules", *MONITOR),
    "asd/tiers": ("tests/asd/tiers", *MONITOR),
    "asd/detect": ("tests/asd/detect", "tests/asd/rules", "tests/asd/tuning", *MONITOR),
    "asd/handler/decide": ("tests/asd/handler", "tests/asd/test_docstrings.py"),
    "asd/event.py": ("tests/asd/test_event.py", "tests/asd/handler/test_decision_words.py", *MONITOR),
}
"""What is changed, and the tests that bear on it; none of them needs MindSpore."""
TARGET = 0.9
"""Of the mutants of each room, those among them that change nothing, so many have to be noticed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Tests the mutants, prints those that no test notices, and returns 1 if too few are noticed."""
    chosen = _parser().parse_args(arguments)
    earlier = [result for path in chosen.again for result in json.loads(path.read_text(encoding="utf-8"))["files"]]
    warm_up()
    results = []
    for room, paths in ROOMS.items():
        files = [file for file in _files(room) if not chosen.files or file in chosen.files]
        found = {file: list(mutants(ROOT, file, chosen.seed, chosen.share)) for file in files}
        again = {file: _survivors_before(file, found[file], earlier) for file in files}
        tried = [mutant for file in files for mutant in again[file]]
        tests = measure(ROOT, files, paths) if tried else []
        print(f"\n{room}: {len(tried)} of {sum(map(len, found.values()))} mutants, {len(tests)} tests", flush=True)
        alive = [entry for entry in _entries(tried, tests, paths) if not entry["killed"]]
        results += [_result(file, len(found[file]), alive) for file in files]
    rooms = {room: _room([result for result in results if result["file"].startswith(room)]) for room in (*ROOMS, "asd")}
    for name, room in rooms.items():
        low, high = room["interval"]
        print(f"{name:20} {room['killed']} of {room['mutants']} killed, {low:.1%} to {high:.1%}", end="")
        print(f"; of the rest {room['equivalent']} change nothing")
    if chosen.output:
        said = {"seed": chosen.seed, "share": chosen.share, "rooms": rooms, "files": results}
        chosen.output.write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(any(room["killed"] < TARGET * room["mutants"] for room in rooms.values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutation", description=__doc__)
    parser.add_argument("files", nargs="*", help="files to change, from the root of the checkout; without any, all")
    parser.add_argument("--seed", type=int, default=1, help="which change is tried at a place")
    parser.add_argument("--share", type=float, default=1.0, help="of the places, from 0 to 1")
    again = "earlier results with this seed and share: where a file is as it was, only its survivors are tried again"
    parser.add_argument("--again", type=Path, nargs="*", default=(), metavar="FILE", help=again)
    parser.add_argument("--output", type=Path, help="where the result goes, as JSON")
    return parser


def _survivors_before(file: str, found: Sequence[Mutant], earlier: Sequence[dict[str, Any]]) -> Sequence[Mutant]:
    """Those of `found` to try: all but where an earlier result says that the same ones were killed."""
    for result in earlier:
        if (result["file"], result["sha256"], result["mutants"]) == (file, _hash(file), len(found)):
            survived = {(entry["kind"], entry["line"], entry["after"]) for entry in result["survivors"]}
            return [mutant for mutant in found if (mutant.kind, mutant.line, mutant.after) in survived]
    return found


def _hash(file: str) -> str:
    return hashlib.sha256((ROOT / file).read_bytes()).hexdigest()


def _files(room: str) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in sorted((ROOT / room).glob("*.py")) or [ROOT / room]]


def _entries(found: Sequence[Mutant], tests: Sequence[Test], paths: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Each mutant, and whether a test noticed. Functions are changed after the tests were collected."""
    inside = [mutant for mutant in found if mutant.function]

    def work() -> object:
        entries: list[dict[str, Any]] = []

        def act(plugin: Collected, items: list[pytest.Item]) -> None:
            known = {item.nodeid: item for item in items}
            for mutant in inside:
                chosen = [known[name] for name in tests_of(mutant, tests)]
                entries.append(_entry(mutant, run_function(ROOT, mutant, plugin, chosen)))

        collect(paths, act)
        return entries

    yield from fork(work, limited=False)[1] if inside else ()
    for mutant in found:
        if not mutant.function:
            yield _entry(mutant, run_import(ROOT, mutant, tests_of(mutant, tests)))


def _entry(mutant: Mutant, outcome: tuple[int, str]) -> dict[str, Any]:
    """One mutant, as the result has it. One whose tests did not end, or crashed, is killed too."""
    status, failed = outcome
    judged = _judged().get((mutant.file, mutant.before, mutant.after), "not judged")
    shown = {key: value for key, value in mutant._asdict().items() if key != "source"}
    entry = {**shown, "killed": bool(status or failed), "judged": judged}
    if not entry["killed"]:
        print("\n{file}:{line} {kind}: {judged}\n  - {before}\n  + {after}".format(**entry), flush=True)
    return entry


@functools.cache
def _judged() -> dict[tuple[str, str, str], str]:
    """What was found about survivors: the reason why the change changes nothing, or why it may stay."""
    entries = json.loads(JUDGED.read_text(encoding="utf-8"))
    return {(entry["file"], entry["before"], entry["after"]): entry["judged"] for entry in entries}


def _result(file: str, tried: int, alive: Sequence[dict[str, Any]]) -> dict[str, Any]:
    own = sorted((entry for entry in alive if entry["file"] == file), key=lambda entry: entry["line"])
    kept = ("line", "function", "kind", "before", "after", "judged")
    survivors = [{key: entry[key] for key in kept} for entry in own]
    return {"file": file, "sha256": _hash(file), "mutants": tried, "survivors": survivors}


def _room(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    survivors = [entry for result in results for entry in result["survivors"]]
    tried = sum(result["mutants"] for result in results)
    killed = tried - len(survivors)
    same = sum(entry["judged"].startswith("equivalent") for entry in survivors)
    return {"mutants": tried, "killed": killed, "interval": wilson(killed, tried), "equivalent": same}


if __name__ == "__main__":
    sys.exit(main())
