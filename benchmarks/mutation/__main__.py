"""`python -m benchmarks.mutation`, or `make mutation`."""

import argparse
import functools
import hashlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks._wilson import wilson
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
MONITOR = ("tests/asd/judge", "tests/asd/test_docstrings.py")
ROOMS = {
    "asd/rules": ("tests/asd/rules", "tests/asd/test_docstrings.py"),
    "asd/judge": (*MONITOR, "tests/asd/rules", "tests/asd/rundir", "tests/asd/tuning"),
    "asd/handler/decide": ("tests/asd/handler", "tests/asd/test_docstrings.py"),
    "asd/event.py": ("tests/asd/test_event.py", "tests/asd/handler/test_decision_words.py", *MONITOR),
}
"""What is changed, and the tests that bear on it; none of them needs MindSpore."""
TARGET = 0.9
"""Of the mutants of each room, those among them that change nothing, so many have to be noticed; or all the others."""
ON_TOP_SECONDS = 120
"""For the changes that are imported, which take longer each."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Tests the mutants, prints those that no test notices, and returns 1 if too few are noticed."""
    chosen = _parser().parse_args(arguments)
    earlier = [result for path in chosen.again for result in json.loads(path.read_text(encoding="utf-8"))["files"]]
    warm_up()
    results = []
    for room, paths in ROOMS.items():
        files = [file for file in _files(room) if not chosen.files or file in chosen.files]
        killed = {file: _killed_before(file, earlier) for file in files}
        trying = [] if chosen.judge else files
        found = [mutant for file in trying for mutant in mutants(ROOT, file, chosen.seed, chosen.share)]
        tried = sorted((each for each in found if each.id not in killed[each.file]), key=lambda each: each.draw)
        tests = measure(ROOT, files, paths) if tried else []
        print(f"\n{room}: {len(tried)} of {len(found)} mutants, {len(tests)} tests", flush=True)
        entries = list(_entries(tried, tests, paths, time.monotonic() + 60 * chosen.minutes))
        if chosen.judge:
            entries = [entry for file in files for entry in _survived_before(file, earlier, killed[file])]
        results += [_result(file, killed[file], [each for each in entries if each["file"] == file]) for file in files]
    rooms = {room: _room([result for result in results if result["file"].startswith(room)]) for room in (*ROOMS, "asd")}
    for name, room in rooms.items():
        low, high = room["interval"]
        print(f"{name:20} noticed {room['killed']} of {room['tried']}, {low:.1%} to {high:.1%}", end="")
        print(
            f"; equivalent {room['equivalent']}, the rest {room['rest']}; {_without(room):.1%} without equivalent ones"
        )
    if chosen.output:
        from benchmarks._measured import write  # it imports the package, which `run_import` has to do itself

        said = {"seed": chosen.seed, "share": chosen.share, "rooms": rooms, "files": results}
        write(chosen.output, said)
    return int(any(room["rest"] and room["killed"] < TARGET * room["tried"] for room in rooms.values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutation", description=__doc__)
    parser.add_argument("files", nargs="*", help="files to change, from the root of the checkout; without any, all")
    parser.add_argument("--seed", type=int, default=1, help="which change is tried at a place, and in which order")
    parser.add_argument("--share", type=float, default=1.0, help="of the places, from 0 to 1")
    parser.add_argument(
        "--minutes",
        type=float,
        default=1e6,
        help="for the mutants of a room, after which it is left with a sample tried",
    )
    again = "earlier results: what was killed there is not tried again, where the file that was changed is as it was"
    parser.add_argument("--again", type=Path, nargs="*", default=(), metavar="FILE", help=again)
    judge = "try nothing: take over the results of --again, survivors judged as survivors.json has them now"
    parser.add_argument("--judge", action="store_true", help=judge)
    parser.add_argument("--output", type=Path, help="where the result goes, as JSON")
    return parser


def _same(file: str, earlier: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [result for result in earlier if (result["file"], result["sha256"]) == (file, _hash(file))]


def _killed_before(file: str, earlier: Sequence[dict[str, Any]]) -> set[str]:
    return {each for result in _same(file, earlier) for each in result["killed"]}


def _survived_before(file: str, earlier: Sequence[dict[str, Any]], killed: set[str]) -> list[dict[str, Any]]:
    """The survivors of earlier results that no other of them killed, judged anew."""
    found = {}
    for entry in (entry for result in _same(file, earlier) for entry in result["survivors"]):
        mutant = Mutant(file, *(entry[key] for key in ("line", "function", "kind", "before", "after")), "", 0.0)
        if mutant.id not in killed:
            found[mutant.id] = {**entry, "file": file, "killed": False, "judged": _judge(mutant)}
    return list(found.values())


def _hash(file: str) -> str:
    return hashlib.sha256((ROOT / file).read_bytes()).hexdigest()


def _files(room: str) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in sorted((ROOT / room).glob("*.py")) or [ROOT / room]]


def _entries(
    found: Sequence[Mutant], tests: Sequence[Test], paths: Sequence[str], end: float
) -> Iterator[dict[str, Any]]:
    """Each mutant that is tried before `end`, and whether a test noticed.

    Functions are changed after the tests were collected. Where that can't be done, the change is imported.
    """
    for entry in fork(lambda: _changed_in_place(found, tests, paths, end), limited=False)[1] if found else ():
        if isinstance(entry, dict):
            yield entry
        elif time.monotonic() < end + ON_TOP_SECONDS:
            yield _entry(found[entry], *run_import(ROOT, found[entry], tests_of(found[entry], tests)))


def _changed_in_place(
    found: Sequence[Mutant], tests: Sequence[Test], paths: Sequence[str], end: float
) -> list[dict[str, Any] | int]:
    """Those that can be changed after the tests were collected; of the others the number."""
    entries: list[dict[str, Any] | int] = []

    def act(plugin: Collected, items: list[pytest.Item]) -> None:
        known = {item.nodeid: item for item in items}
        for number, mutant in enumerate(found):
            if time.monotonic() > end:
                return
            status, failed = 1, ""
            if mutant.function:
                status, failed = run_function(ROOT, mutant, plugin, [known[name] for name in tests_of(mutant, tests)])
            entries.append(number if status == 1 else _entry(mutant, status, failed))

    collect(paths, act)
    return entries


def _entry(mutant: Mutant, status: int, failed: str) -> dict[str, Any]:
    """One mutant, as the result has it. One whose tests did not end, or crashed, is killed too."""
    shown = {key: value for key, value in mutant._asdict().items() if key not in ("source", "draw")}
    entry = {**shown, "id": mutant.id, "killed": bool(status or failed), "judged": _judge(mutant)}
    if not entry["killed"]:
        print("\n{file}:{line} {kind}: {judged}\n  - {before}\n  + {after}".format(**entry), flush=True)
    return entry


def _judge(mutant: Mutant) -> str:
    """The reason why a change changes nothing, or why it may stay: of the line, or of what changes in it."""
    for file, before, after, judged in _judgements():
        if file == mutant.file and mutant.before.replace(before, after) == mutant.after != mutant.before:
            return judged
    return "not judged"


@functools.cache
def _judgements() -> list[tuple[str, str, str, str]]:
    entries = json.loads(JUDGED.read_text(encoding="utf-8"))
    return [(file, entry["before"], entry["after"], entry["judged"]) for entry in entries for file in _of(entry)]


def _of(entry: dict[str, Any]) -> list[str]:
    return entry["file"] if isinstance(entry["file"], list) else [entry["file"]]


def _result(file: str, killed: set[str], entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    kept = ("line", "function", "kind", "before", "after", "judged")
    alive = sorted((entry for entry in entries if not entry["killed"]), key=lambda entry: entry["line"])
    survivors = [{key: entry[key] for key in kept} for entry in alive]
    killed = killed | {entry["id"] for entry in entries if entry["killed"]}
    return {"file": file, "sha256": _hash(file), "killed": sorted(killed), "survivors": survivors}


def _room(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    survivors = [entry for result in results for entry in result["survivors"]]
    killed = sum(len(result["killed"]) for result in results)
    same = sum(entry["judged"].startswith("equivalent") for entry in survivors)
    tried = killed + len(survivors)
    said = {"tried": tried, "killed": killed, "interval": wilson(killed, tried), "equivalent": same}
    return {**said, "rest": tried - killed - same}


def _without(room: dict[str, Any]) -> float:
    """The share of those noticed among those that change anything."""
    return room["killed"] / max(1, room["tried"] - room["equivalent"])


if __name__ == "__main__":
    sys.exit(main())
