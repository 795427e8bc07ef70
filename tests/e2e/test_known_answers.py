"""`asd selftest --seconds` as a user starts it, and what the handler makes of it."""

import json
import socket
import sys

from asd.cli import main
from asd.exporters.run_files.event_log import read_events

PROGRAM = """
import sys
from asd.cli import main
from asd.operators.rerun.pieces import PIECES

works = [each for each in PIECES["factors"] if each.name == "Mul"]
PIECES["factors"] = [each._replace(compute=lambda x, y: x * y * 1.5) for each in works]
sys.exit(main(sys.argv[1:]))
"""


def handled(runner, capfd, outcome, shown):
    """Whether the handler tells of this outcome, and `asd devices` then shows that."""
    run = str(runner.folder / "run")
    assert main(["handler", "--once", "--run-dir", run]) == 0
    assert capfd.readouterr().out.startswith(f"{outcome} on {socket.gethostname()}: ")
    assert main(["devices", "--run-dir", run]) == 0
    return shown in capfd.readouterr().out


def test_a_device_that_passes_is_an_event_that_the_handler_takes_in(runner, capfd):
    done = runner.asd("selftest", "--device", "CPU:1", "--seconds", 0, "--run-dir", "run", "--json")
    assert (done.code, done.err) == (0, "")
    result = json.loads(done.out)
    assert '"failed": false' in done.out  # as the tests before a job look for it
    assert (result["machine"]["device"], result["failed"], result["counts"]["wrong"]) == ("CPU:1", False, 0)
    (told,) = read_events(runner.folder / "run" / "events-stress.jsonl")
    assert (told.id, told.kind, told.device, told.verdict) == (result["event"], "stress", "CPU:1", "")
    assert handled(runner, capfd, "passed: CPU:1", "  passed 20")


def test_a_device_that_fails_is_named_with_its_bits_and_isolated_by_the_handler(runner, capfd):
    words = ("selftest", "--device", "CPU:0", "--seconds", "0", "--run-dir", "run")
    done = runner.run(sys.executable, "-c", PROGRAM, *words)
    assert done.code == 1
    sentence, where = done.out.splitlines()
    assert sentence.startswith("CPU:0 computed wrongly: factors, Mul, repetition 1, ")
    (told,) = read_events(runner.folder / "run" / "events-stress.jsonl")
    assert all(word in where for word in (told.id, "run/events-stress.jsonl"))
    assert (told.checkpoint, told.value, told.verdict, told.reason) == ("factors.Mul", 49128.0, "persistent", sentence)
    assert handled(runner, capfd, "isolated: CPU:0", "  failed 20")
