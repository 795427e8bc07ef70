"""What finding a wrong operator costs after the alarm: the comparison of many small calls, and of many bytes.

    python benchmarks/debugging.py                          all parts
    python benchmarks/debugging.py --parts calls tensors
    python benchmarks/debugging.py --quick --json out.json  a fiftieth of each, to see that it runs

Every comparison is `asd compare` in a process of its own; its memory is the largest resident set the kernel saw. Beside
the tensors stands the time that reading the same files once, and comparing them byte by byte, takes by itself.
"""

import argparse
import json
import os
import platform
import statistics as stats
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from _measured import write

CALLS, GIGABYTES, MEGABYTES_EACH = 20_000, 4.0, 64
_MEASURE = """
import json, resource, sys, time
from asd.cli import main
began = time.perf_counter()
code = main(sys.argv[1:])
usage = resource.getrusage(resource.RUSAGE_SELF)
# Not ru_maxrss: a new process inherits that of the one that started it.
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"seconds": time.perf_counter() - began, "cpu_seconds": usage.ru_utime + usage.ru_stime,
                  "megabytes": int(peak) / 1024, "code": code}), file=sys.stderr)
"""


def measured_compare(tested: Path, trusted: Path, output: Path) -> dict:
    """One comparison in a new process: seconds without the start of Python, peak memory, and its answer."""
    command = [sys.executable, "-c", _MEASURE, "compare", "-tp", tested, "-gp", trusted, "-o", output, "--json"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    figures = json.loads(done.stderr.splitlines()[-1]) if done.stdout else {"code": 1}
    if figures["code"]:
        raise SystemExit(done.stderr)
    return {**figures, "answer": json.loads(done.stdout)["first_divergence"]}


def statistics_of(rng: np.random.Generator) -> dict:
    """A tensor as dump.json describes it."""
    values = rng.standard_normal(4)
    return {
        "type": "mindspore.Tensor",
        "dtype": "Float32",
        "shape": [4, 1024, 512],
        "Max": float(values.max()),
        "Min": float(values.min()),
        "Mean": float(values.mean()),
        "Norm": float(np.abs(values).sum()),
        "md5": f"{rng.integers(1 << 32):08x}",
    }


def write_calls(folder: Path, calls: int, wrong: int, *, md5: bool) -> None:
    """A dump of statistics: each call has two inputs and an output; from call `wrong` on the outputs differ."""
    rng = np.random.default_rng(1)
    data, previous = {}, statistics_of(rng)
    for index in range(calls):
        weight, output = statistics_of(rng), statistics_of(rng)
        if index >= wrong:
            output = {**output, "Max": output["Max"] + 0.5, "md5": f"{int(output['md5'], 16) ^ 1:08x}"}
        data[f"Mint.matmul.{index}.forward"] = {
            "input_args": [previous, weight],
            "input_kwargs": {},
            "output": [output],
        }
        previous = output
    if not md5:
        for entry in data.values():
            for tensor in (*entry["input_args"], *entry["output"]):
                tensor.pop("md5", None)
    folder.mkdir(parents=True)
    head = {"task": "statistics", "level": "L1", "framework": "mindspore", "dump_data_dir": None, "data": data}
    (folder / "dump.json").write_text(json.dumps(head, indent=1))


def many_calls(scale: float, repeats: int) -> dict:
    """A comparison of 20,000 calls by statistics, and by CRC32."""
    calls = int(CALLS * scale)
    found = {}
    for mode in ("statistics", "md5"):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_calls(folder / "golden", calls, calls, md5=mode == "md5")
            write_calls(folder / "tested", calls, calls // 2, md5=mode == "md5")
            runs = [measured_compare(folder / "tested", folder / "golden", folder / "out") for _ in range(repeats)]
            size = (folder / "golden" / "dump.json").stat().st_size
        answers = {run["answer"]["call"] for run in runs}
        found[mode] = {
            "calls": calls,
            "rows": 3 * calls,
            "dump_json_megabytes": size / 1e6,
            "seconds": stats.median(run["seconds"] for run in runs),
            "cpu_seconds": stats.median(run["cpu_seconds"] for run in runs),
            "megabytes": max(run["megabytes"] for run in runs),
            "named_right": answers == {f"Mint.matmul.{calls // 2}.forward"},
        }
    return found


def write_tensors(folder: Path, count: int, flip: int | None, *, drift: bool) -> None:
    """A dump of a chain of `count` tensors; one bit flipped in one of them, or every element a tenth off."""
    data_dir = folder / "dump_tensor_data"
    data_dir.mkdir(parents=True)
    elements = MEGABYTES_EACH * (1 << 20) // 4
    data = {}
    drawn = np.random.default_rng(0).standard_normal(elements, np.float32)
    for index in range(count):
        array = drawn + np.float32(index)
        if drift:
            array *= np.float32(1.1)
        if index == flip:
            array.view(np.uint32)[elements // 3] ^= 1 << 20
        name = f"Mint.add.{index}.forward"
        np.save(data_dir / f"{name}.output.0.npy", array)
        output = {
            "type": "mindspore.Tensor",
            "dtype": "Float32",
            "shape": [elements],
            "Max": 1.0,
            "Min": 0.0,
            "Mean": 0.5,
            "Norm": 1.0,
            "data_name": f"{name}.output.0.npy",
        }
        data[name] = {"input_args": [], "input_kwargs": {}, "output": [output]}
    head = {"task": "tensor", "level": "L1", "framework": "mindspore", "dump_data_dir": str(data_dir), "data": data}
    (folder / "dump.json").write_text(json.dumps(head, indent=1))


def plain_seconds(ours: Path, theirs: Path) -> float:
    """Seconds that reading all tensors of both sides once, and comparing their bytes, takes."""
    began, differing = time.perf_counter(), 0
    for file in sorted((ours / "dump_tensor_data").iterdir()):
        with file.open("rb") as a, (theirs / "dump_tensor_data" / file.name).open("rb") as b:
            while block := a.read(1 << 20):
                differing += block != b.read(len(block))
    assert differing
    return time.perf_counter() - began


def many_bytes(scale: float, repeats: int, where: str | None) -> dict:
    """4 GB of tensors: equal but for one flipped bit, and different in every element."""
    count = max(2, round(GIGABYTES * scale * 1000 / MEGABYTES_EACH / 2))
    found = {}
    for kind in ("one flipped bit", "every element"):
        with tempfile.TemporaryDirectory(dir=where) as name:
            folder = Path(name)
            flip = count // 2 if kind == "one flipped bit" else None
            write_tensors(folder / "golden", count, None, drift=False)
            write_tensors(folder / "tested", count, flip, drift=flip is None)
            plain, runs = [], []
            for _ in range(repeats):
                plain.append(plain_seconds(folder / "tested", folder / "golden"))
                runs.append(measured_compare(folder / "tested", folder / "golden", folder / "out"))
        right = f"Mint.add.{0 if flip is None else flip}.forward"
        found[kind] = {
            "gigabytes": 2 * count * MEGABYTES_EACH * (1 << 20) / 1e9,
            "seconds": stats.median(run["seconds"] for run in runs),
            "cpu_seconds": stats.median(run["cpu_seconds"] for run in runs),
            "plain_read_seconds": stats.median(plain),
            "megabytes": max(run["megabytes"] for run in runs),
            "named_right": all(run["answer"]["call"] == right for run in runs),
        }
    return found


PARTS = {
    "calls": lambda args: many_calls(args.scale, args.repeats),
    "tensors": lambda args: many_bytes(args.scale, args.repeats, args.folder),
}


def main() -> None:
    """Runs the chosen parts and prints their figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", help="where the tensors go for the time of the measurement")
    parser.add_argument("--json", type=Path, help="write the figures there, beside those of parts not run now")
    args = parser.parse_args()
    args.scale = 0.02 if args.quick else 1.0
    figures = json.loads(args.json.read_text()) if args.json is not None and args.json.is_file() else {}
    figures["machine"] = {
        "cpus": os.cpu_count(),
        "arch": platform.machine(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
    }
    for part in args.parts:
        figures[part] = PARTS[part](args)
        for kind, row in figures[part].items():
            shown = "  ".join(
                f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()
            )
            print(f"{part:<8} {kind:<16} {shown}", flush=True)
        if args.json is not None:
            write(args.json, figures)


if __name__ == "__main__":
    main()
