"""The benchmark of detection: bad devices, in trainings that nothing was tuned on, as a user finds them.

    python -m benchmarks.held_out --number 7            all of it; hours on 2 cores
    python -m benchmarks.held_out --quick --check       a part of it, and 1 when detection got worse
    python -m benchmarks.held_out --kinds lasting --modes graph --folder out --minutes 60 --json part.json
                                                        an hour of it; the same command goes on where it ended
    python -m benchmarks.held_out --ranks 2 --kinds memory link     jobs of two ranks, of which one is bad, or the link
    python -m benchmarks.held_out --noise 0.2 --kinds core          last bits of sums are drawn anew in each call
    python -m benchmarks.held_out --merge part.json other.json --json sum.json

A device is bad: its results are wrong in all that the process computes, in graph mode and PyNative, in the training and
in what detection computes itself; or memory loses bits; or a link delivers something else to all. Kinds of faults:

{kinds}

A fault is harmful when the training without detection ends with a loss 1 % above that of its healthy twin, or with
weights that are apart by 5 % of the way they went. Harmful ones are run once more, each in a process or a job of its
own, as a user would; faults of cores, links and gates whether they harm or not.
"""

import argparse
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.held_out.faults import ANYWAY, KINDS, ONE_CALL
from benchmarks.held_out.judging import checks, events, found, key_of, regressions, summary, table

RESULTS = Path(__file__).resolve().parents[1] / "results" / "held_out.json"
TRAININGS = (
    *(
        f"{name}-graph-float32"
        for name in ("coder", "experts", "convolutions", "decoder", "patches", "recurrent", "graph")
    ),
    *(f"{name}-graph-float16" for name in ("patches", "coder", "recurrent", "graph")),
    *(f"{name}-pynative-float32" for name in ("coder", "convolutions", "patches", "experts", "graph")),
    "coder-pynative-float16",
)
FIRST = ("single", "intermittent", "lasting", "range", "memory")
QUICK = (
    *("coder-graph-float32", "experts-graph-float32", "convolutions-graph-float32", "patches-graph-float16"),
    *("coder-pynative-float32", "convolutions-pynative-float32"),
)
DRAWN = {"single": 40, "memory": 16, "gate": 96, "core": 16, "link": 12} | dict.fromkeys(("intermittent", "place"), 12)
DRAWN = dict.fromkeys(KINDS, 8) | DRAWN
"""Faults for each training; a third of that in PyNative, whose steps take longer."""
ENVIRONMENT = {
    **{"GLOG_v": "3", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    # With AVX-512, oneDNN has only its reference convolution for plain layouts, which is fifty times slower.
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    # Kernels of a few microseconds are launched where they are prepared: handing them over takes longer than they do.
    "MS_DEV_RUNTIME_CONF": "pipeline:False,inline:True",
}


class _OverError(Exception):
    """No process is begun any more; what was run counts."""


class Plan(NamedTuple):
    """What is run."""

    number: int  # from which everything is drawn
    kinds: tuple[str, ...]  # of faults
    cases: int  # the most harmful faults of each kind and training that are run with detection
    quick: bool  # whether a fault that stays is looked at for fewer steps in PyNative
    folder: Path  # of the lines of JSON and the run folders
    healthy: int = 0  # steps of a training without a fault, or 0: as many as of one with a fault
    ranks: int = 1  # of each job
    noise: float = 0.0  # share of the numbers of sums whose last bit is drawn anew in each call
    ends: float = float("inf")  # when no more is begun, as `time.monotonic` has it
    most: int = 10**6  # faults of a kind and training that are drawn, at most
    settings: tuple[str, ...] = ()  # of detection, beside the one that turns it on, such as ASD_PROTECTION=document

    def spec(self, training: str, **more: Any) -> dict[str, Any]:
        """For a process."""
        slow = "-pynative-" in training
        horizon = 60 if slow and self.quick else 200
        about = {"training": training, "number": self.number, "horizon": horizon}
        return about | {"ranks": self.ranks, "noise": self.noise} | more

    def about(self, training: str) -> dict[str, Any]:
        """For the rows of a training."""
        told = {"training": training, "mode": training.split("-")[1], "number": self.number}
        return told | {"ranks": self.ranks, "noise": self.noise, "settings": " ".join(self.settings)}

    def begin(self) -> None:
        """Raises `_OverError` where its time is up."""
        if time.monotonic() >= self.ends:
            raise _OverError

    def drawn(self, training: str) -> dict[str, int]:
        """How many faults of each kind."""
        share = 3 if "-pynative-" in training else 1
        kinds = [kind for kind in self.kinds if kind != "link" or self.ranks > 1]
        return {"control": 1} | {kind: min(self.most, -(-DRAWN[kind] // share)) for kind in kinds}


def lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a file; one that was cut off by an end is left out."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def process(spec: dict[str, Any], more: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """A process or a job of ranks, with nothing in its environment that tells a detector anything but `more`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ASD_", "NPU_ASD"))}
    clean |= ENVIRONMENT | {"PYTHONPATH": str(RESULTS.parents[2])} | more
    words = ["-m", "benchmarks.held_out.train"]
    if spec["ranks"] > 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        count, program = spec["ranks"], str(Path(__file__).with_name("train.py"))
        words = ["-m", "mindspore.parallel.cluster.run", f"--worker_num={count}", f"--local_worker_num={count}"]
        words += [f"--master_port={port}", "--log_dir=logs", "--join=True", program]
        clean["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    folder.mkdir(parents=True, exist_ok=True)
    return subprocess.run(
        [sys.executable, *words, json.dumps(spec)], env=clean, cwd=folder, capture_output=True, text=True
    )


def harm(plan: Plan, training: str) -> list[dict[str, Any]]:
    """Rows of all faults of a training, without detection; the healthy one first."""
    out = plan.folder / f"{training}.jsonl"
    kinds = plan.drawn(training)
    wanted = {"healthy"} | {f"{kind} {i}" for kind, count in kinds.items() for i in range(count)}
    rows = lines(out)
    done = {row["fault"] for row in rows}
    if wanted - done:
        plan.begin()
        out.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")  # without half a line
        spec = plan.spec(training, watched=False, kinds=kinds, done=sorted(done), out=str(out))
        ended = process(spec, {}, plan.folder / "jobs" / training)
        if ended.returncode:
            raise SystemExit(f"{training} ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
    return [row for row in lines(out) if row["fault"] in wanted]


def watched(plan: Plan, training: str, row: dict[str, Any]) -> dict[str, Any]:
    """One training with detection, in a process and a run folder of its own; what it left, and how it ended."""
    name = " ".join((training, row["fault"], *plan.settings))
    folder = plan.folder / "runs" / name.replace(" ", "-")
    out = folder / "told.jsonl"
    if not (folder / "ended").exists():
        plan.begin()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        fault = row.get("drawn")
        if fault and fault["kind"] in ONE_CALL and row["strike"] and not plan.noise:
            fault = fault | {"details": fault["details"] | {"before": row["strike"]["before"]}}
        spec = plan.spec(training, watched=True, fault=fault, healthy=plan.healthy, out=str(out))
        more = dict(each.split("=", 1) for each in plan.settings)
        ended = process(spec, {"NPU_ASD_ENABLE": "1", "ASD_RUN_DIR": str(folder)} | more, folder)
        if not out.exists():
            raise SystemExit(f"{name} ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
        (folder / "ended").write_text(f"{ended.returncode}\n{ended.stderr[-2000:]}", encoding="utf-8")
    code = int((folder / "ended").read_text(encoding="utf-8").split("\n", 1)[0])
    told = {each["rank"]: each for each in lines(out)}
    rank = max((row.get("drawn") or {"rank": 0})["rank"], 0)
    own = told.get(rank) or next(iter(told.values())) | {"strike": row["strike"], "strikes": None}  # it was ended
    own["applied"] = any(each.get("applied") for each in told.values())
    return own | {"code": code, "events": events(folder), "checks": checks(folder)}


def one_case(plan: Plan, training: str, row: dict[str, Any]) -> dict[str, Any]:
    """A fault, with whether it was found."""
    told = watched(plan, training, row)
    strike = told["strike"] and told["strike"]["step"]
    if row["kind"] in ANYWAY:
        strike = row["drawn"]["details"]["first"]  # the first wrong result may be one that a detector asked for
    if row["kind"] in ONE_CALL and _call(told["strike"], plan.noise) != _call(row["strike"], plan.noise):
        early = found(told["events"], strike, "")["alarms_too_early"]
        # Apart from these alarms, what was found says nothing about the call that did harm.
        return row | {"another_call": True, "alarms_too_early": early}
    rank = row["drawn"]["rank"]
    row |= found(told["events"], strike, "" if rank < 0 else f"CPU:{rank}")
    row |= {"code": told["code"], "wrong_results": told["strikes"]}
    if row["kind"] == "gate":
        row["applied"] = told["applied"]
    return row


def _call(strike: dict[str, Any] | None, noise: float) -> dict[str, Any]:
    """The call that a strike met: by what was right there, where noise is by its number."""
    left_out = ("before", "changed") if noise else ("call",)
    return {name: value for name, value in (strike or {}).items() if name not in left_out}


def one_healthy(plan: Plan, training: str, row: dict[str, Any]) -> dict[str, Any]:
    """A training without a fault."""
    told = watched(plan, training, {"fault": "healthy"})
    alarms = sum(event["level"] == "first" for event in told["events"])
    steps = row["first"] - 1 + max(plan.spec(training)["horizon"], plan.healthy)
    equal = plan.noise > 0 or told["losses"][: len(row["losses"])] == row["losses"]
    equal = equal and told["code"] == 0 and len(told["losses"]) == steps
    return plan.about(training) | {"steps": told["step"], "checks": told["checks"], "alarms": alarms, "equal": equal}


def chosen(plan: Plan, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The faults to run with detection: the first of each kind that harm, or that are to be found at any rate."""
    seen: Counter[str] = Counter()
    for row in rows:
        if (row["harmful"] or row["kind"] in ANYWAY) and seen[row["kind"]] < plan.cases:
            seen[row["kind"]] += 1
            yield row


def run(plan: Plan, trainings: tuple[str, ...], workers: int) -> dict[str, Any]:
    """Trainings of a plan, as many as its time allows; the rows of every fault, and the healthy ones."""

    def begun(each: Callable[..., Any], *more: Any) -> Any:
        try:
            return each(plan, *more)
        except _OverError:
            return None

    with ThreadPoolExecutor(workers) as pool:
        rows, healthy = [], []
        work: list[tuple[Any, ...]] = []
        harms = pool.map(lambda each: begun(harm, each), trainings)
        for training, all_rows in zip(trainings, harms, strict=True):
            if not all_rows:
                continue
            first, *struck = sorted(all_rows, key=lambda row: row["fault"] != "healthy")
            faults = [plan.about(training) | row | {"kind": row["drawn"]["kind"]} for row in struck]
            run_again = list(chosen(plan, (row for row in faults if row["kind"] != "control")))
            work += [] if plan.settings else [(one_healthy, training, first)]
            work += [(one_case, training, row) for row in run_again]
            rows += [row for row in faults if row not in run_again]
        work.sort(key=lambda each: each[2]["fault"].replace("healthy", "0").split()[-1].zfill(4))  # some of each first
        print(f"{len(work)} trainings with detection", file=sys.stderr, flush=True)
        left = 0
        for done, row in zip(work, pool.map(lambda each: begun(*each), work), strict=True):
            left += row is None
            if done[0] is one_healthy:
                healthy += [row] if row else []
            else:
                rows.append(row or done[2])
        if left:
            print(f"{left} of them are left: the same command with --folder goes on", file=sys.stderr)
    return summed(rows, healthy)


def summed(rows: list[dict[str, Any]], healthy: list[dict[str, Any]]) -> dict[str, Any]:
    """The result of all rows, with the trainings that a last bit harmed beside."""
    harmed = [row["training"] for row in rows if row["kind"] == "control" and row["harmful"]]
    rows = [row for row in rows if row["kind"] != "control"]
    return summary(rows, healthy) | {"harmed_by_the_last_bit": harmed, "trainings": healthy, "rows": rows}


def merged(paths: Iterable[Path]) -> dict[str, Any]:
    """The sum of several results, sums too, with where each is from."""
    parts = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    rows = [row for part in parts for row in part["rows"]]
    twice = Counter(key_of(row) for row in rows)
    if twice and max(twice.values()) > 1:
        raise SystemExit(f"{twice.most_common(1)[0][0]} is in two of the results; pass each once.")
    told = summed(rows, [each for part in parts for each in part["trainings"]])
    told["harmed_by_the_last_bit"] = [each for part in parts for each in part["harmed_by_the_last_bit"]]
    kept = ("command", "commit", "detection", "mindspore", "machine")
    single = [{name: each.get(name) for name in kept} for part in parts for each in part.get("parts", [part])]
    about = {"commit": " ".join(sorted({str(each["commit"]) for each in single})), "command": "see parts"}
    return about | {"parts": single} | told


def commits() -> dict[str, str]:
    """The commit of this checkout, with whether files differ from it, and the last one that changed detection."""
    words = {"commit": "describe --always --dirty --exclude=*", "detection": "log -1 --format=%h -- asd operators"}
    root = RESULTS.parents[2]
    told = {
        name: subprocess.run(["git", *each.split()], cwd=root, capture_output=True, text=True, check=False).stdout
        for name, each in words.items()
    }
    return {name: text.strip() or "unknown" for name, text in told.items()}


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    """The options of the command line."""
    kinds = "\n".join(f"    {kind:13} {words}" for kind, words in KINDS.items())
    parser = argparse.ArgumentParser(
        description=__doc__.replace("{kinds}", kinds), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--number", type=int, default=20261127, help="networks, seeds, schedules and faults follow from it"
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=FIRST, help="of faults (default: the first five)")
    parser.add_argument("--modes", nargs="+", choices=("graph", "pynative"), default=("graph", "pynative"))
    parser.add_argument("--trainings", nargs="+", choices=TRAININGS, metavar="NAME", help="such as coder-graph-float32")
    parser.add_argument(
        "--cases", type=int, help="most harmful faults of a kind and training to run (default: 8; quick: 2)"
    )
    parser.add_argument("--draw", type=int, default=10**6, metavar="N", help="at most, of each kind and training")
    parser.add_argument("--quick", action="store_true", help="six trainings, shorter ones in PyNative")
    parser.add_argument("--healthy", type=int, default=0, metavar="STEPS", help="of each training without a fault")
    parser.add_argument("--ranks", type=int, choices=range(1, 9), default=1, help="of each job (default: %(default)s)")
    parser.add_argument("--noise", type=float, default=0.0, help="share of sums whose last bit is drawn in each call")
    parser.add_argument(
        "--settings", nargs="+", default=(), metavar="NAME=VALUE", help="of detection (default: as shipped)"
    )
    parser.add_argument("--workers", type=int, choices=(1, 2), default=2, help="processes (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which nothing more is begun")
    parser.add_argument("--folder", type=Path, help="keeps what was run; what is there already is not run again")
    parser.add_argument("--json", type=Path, help="write the result there")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="JSON", help="sum these results, and run nothing")
    parser.add_argument(
        "--check", action="store_true", help="end with 1 when detection got worse than in benchmarks/results"
    )
    options = parser.parse_args(arguments)
    options.cases = options.cases or (2 if options.quick else 8)
    if options.json and options.json.exists() and not options.merge and '"parts"' in options.json.read_text("utf-8"):
        parser.error(f"--json {options.json} is a sum of several runs, which one run must not replace; use --merge")
    if (
        options.number < 0
        or options.cases < 1
        or options.healthy < 0
        or options.draw < 1
        or not 0 <= options.noise <= 1
        or not all("=" in each for each in options.settings)
    ):
        parser.error(
            "--number and --healthy are at least 0, --cases and --draw at least 1, --noise from 0 to 1,"
            " --settings NAME=VALUE"
        )
    return options


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """What a run of the command found, and where it is from."""
    modes = tuple(f"-{mode}-" for mode in options.modes)
    every = options.trainings or (QUICK if options.quick else TRAININGS)
    trainings = tuple(each for each in every if any(mode in each for mode in modes))
    names = (Path(word).name for word in sys.argv[1:])
    about = {
        # Of a path its last part: the rest is about a machine. How long it may take changes no row.
        "command": re.sub(r" --minutes \S+", "", " ".join(("python -m benchmarks.held_out", *names))),
        **commits(),
        "mindspore": version("mindspore"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    with tempfile.TemporaryDirectory() as made:
        folder = (options.folder or Path(made)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        mine = f"{about['commit']} {options.number} {options.ranks} {options.noise}"
        kept = folder / "made_by"
        if kept.exists() and kept.read_text(encoding="utf-8") != mine:
            raise SystemExit(f"{folder} has runs of another commit, number, ranks or noise; pass another --folder.")
        kept.write_text(mine, encoding="utf-8")
        plan = Plan(options.number, tuple(options.kinds), options.cases, options.quick, folder, options.healthy)
        plan = plan._replace(most=options.draw, ranks=options.ranks, noise=options.noise)
        plan = plan._replace(ends=time.monotonic() + 60 * options.minutes, settings=tuple(options.settings))
        return about | run(plan, trainings, options.workers)


def main() -> int:
    """Runs or merges, prints and writes; 1 when `--check` finds that detection got worse."""
    options = options_of(None)
    result = merged(options.merge) if options.merge else measured(options)
    print(table(result))
    if options.json:
        rows = ",\n".join(f"  {json.dumps(row)}" for row in result["rows"])  # a line each: there are thousands
        text = json.dumps(result | {"rows": []}, indent=1).replace('"rows": []', f'"rows": [\n{rows}\n ]')
        options.json.write_text(text + "\n", encoding="utf-8")
    broken = regressions(result, json.loads(RESULTS.read_text(encoding="utf-8"))) if options.check else []
    print("".join(f"error: {sentence}\n" for sentence in broken), end="")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
