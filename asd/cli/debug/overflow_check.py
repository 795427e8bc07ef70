"""Names, for each rank of a dumped step, the first call that made Inf, NaN or an overflow out of sound inputs.

Reads the statistics in dump.json, no tensors. The result is a JSON file with the call, its numbers, the modules around
it and its call stack, for each rank in which something is wrong.
"""

from __future__ import annotations

import argparse
import json
from datetime import datetime
from pathlib import Path

from asd.errors import ConfigError

__all__ = ["add_arguments", "run"]

_EXAMPLES = """\
Examples:
  asd overflow_check -i dump/step0 -o out
  asd nan_analyze -i dump/step0 --json        the same by its other name, for programs

exit codes: 0 done, whatever was found; 1 a dump can't be read or the result written; 2 wrong usage."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd overflow_check`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("-i", "--input_path", required=True, metavar="DIR", help="folder of a dumped step")
    parser.add_argument("-o", "--output_path", default="output", metavar="DIR", help="folder of the result; output")
    parser.add_argument("--json", action="store_true", help="print the result too, for programs")


def run(args: argparse.Namespace) -> int:
    """Looks at every rank and writes what it found."""
    from asd.dumps.formats.dump_folder import find_dumps
    from asd.dumps.formats.new_file import free_timestamp, new_file
    from asd.dumps.overflow.first_call import find_anomaly

    folder, output = Path(args.input_path), Path(args.output_path)
    if not folder.exists():
        raise ConfigError("--input_path", args.input_path, "there is nothing at that path")
    if output.exists() and not output.is_dir():
        raise ConfigError("--output_path", args.output_path, "it must be a folder, new or there already")
    dumps = find_dumps(folder)
    if len({step for step, _ in dumps}) > 1:
        raise ConfigError("--input_path", args.input_path, "name the folder of one step, such as step0")
    found = {f"rank_{rank or 0}": find_anomaly(path) for (_, rank), path in dumps.items()}
    facts = {rank: anomaly.to_json() for rank, anomaly in sorted(found.items()) if anomaly is not None}
    pattern = "anomaly_analyze_{}.json"
    target = output / pattern.format(free_timestamp(output, [pattern], datetime.now().astimezone()))
    content = json.dumps(facts, indent=1)
    with new_file(target) as file:
        file.write(content.encode())
    if args.json:
        print(content)
        return 0
    for rank, anomaly in sorted(found.items()):
        if anomaly is not None:
            how = "made it out of sound inputs" if anomaly.made_here else "was given it already"
            how = f"its weight {anomaly.weight} held it already" if anomaly.weight else how
            print(f"{rank}: {anomaly.name} is the first with Inf, NaN or an overflow, and {how}.")
    if not facts:
        print(f"No call has Inf, NaN or an overflow (ranks looked at: {len(found)}).")
    print(f"  {target}")
    return 0
