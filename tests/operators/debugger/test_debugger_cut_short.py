"""A process that ends in the middle of a recorded step: what is left is a dump, and the commands read it."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from debugged_nets import dump_of

from asd.cli import main
from asd.dumps.formats.dump_folder import find_dumps, read_dump, stack_of
from asd.dumps.formats.journal_file import JOURNAL
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.dumps.record.journal import recover
from asd.dumps.record.writer import DumpWriter
from asd.operators import PrecisionDebugger

TRAINING = """
import sys
sys.path.insert(0, sys.argv[3])
import mindspore as ms
from debugged_nets import Net, batches
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.operators import PrecisionDebugger
ms.set_context(mode=ms.PYNATIVE_MODE)
net = Net()
debugger = PrecisionDebugger(DebuggerConfig.of({"task": "tensor", "level": "mix", "dump_path": sys.argv[1]}))
debugger.start(net)
net(batches(1)[0]).asnumpy()
if sys.argv[2] == "raise":
    raise RuntimeError("of the user")
if sys.argv[2] == "wait":
    print("forward is done", flush=True)
    sys.stdin.read()
debugger.stop()
"""
OVERFLOW = """
import sys
sys.path.insert(0, sys.argv[2])
import mindspore as ms
from asd.operators.ptdbg import overflow_check, register_hook, set_dump_path
from debugged_nets import Net, batches
ms.set_context(mode=ms.PYNATIVE_MODE)
net = Net()
set_dump_path(sys.argv[1])
register_hook(net, overflow_check, overflow_nums=1)
ms.grad(lambda x: net(x * 1e-35) * 1e30 * 1e30)(batches(1)[0])
raise ValueError("of the user")
"""


def run(folder, how):
    here = str(Path(__file__).parents[1])
    command = [sys.executable, "-c", TRAINING, str(folder), how, here]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        if how == "wait":
            assert process.stdout.readline() == "forward is done\n"
            process.send_signal(signal.SIGINT)
        process.wait()
        return process.returncode, process.stderr.read()


def test_after_ctrl_c_in_a_step_every_command_reads_the_journal(tmp_path, capsys):
    assert run(tmp_path / "run", "wait")[0] != 0
    assert run(tmp_path / "healthy", "stop")[0] == 0
    rank = tmp_path / "run" / "step0" / "rank0"
    assert (rank / JOURNAL).is_file()
    assert not (rank / "dump.json").exists()
    told = f"{rank / JOURNAL} is the journal of a step that was cut short"
    named = {
        "npu_path": str(rank / "dump.json"),
        "stack_path": str(rank / "stack.json"),
        "bench_path": str(tmp_path / "healthy/step0/rank0/dump.json"),
    }
    (tmp_path / "compare.json").write_text(json.dumps(named))
    folders = ["-tp", str(tmp_path / "run/step0"), "-gp", str(tmp_path / "healthy/step0")]
    for which in (folders, ["-i", str(tmp_path / "compare.json")]):
        assert main(["compare", *which, "-o", str(tmp_path / "out")]) == 0
        printed = capsys.readouterr()
        assert told in printed.err
        assert "The runs do not part" in printed.out
    assert main(["overflow_check", "-i", str(rank.parent), "-o", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr()
    assert told in printed.err
    assert "No call has Inf" in printed.out
    assert main(["run_ut", "-api_info", str(rank / "dump.json"), "-o", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr()
    assert told in printed.err
    assert " 0 error" in printed.out
    PrecisionDebugger(DebuggerConfig.of({"dump_path": str(tmp_path / "run")}))
    dump, stack, construct = dump_of(tmp_path / "run")
    assert set(stack) == set(construct) == set(dump["data"])
    output = dump["data"]["Cell.head.Dense.forward.0"]["output"][0]
    assert (rank / "dump_tensor_data" / output["data_name"]).stat().st_size > 0


def test_an_exception_in_a_step_leaves_the_files_of_what_was_computed(tmp_path):
    code, printed = run(tmp_path, "raise")
    assert (code, printed.count("Traceback")) == (1, 1)
    assert "Cell.head.Dense.forward.0" in dump_of(tmp_path)[0]["data"]
    assert not list(tmp_path.rglob(JOURNAL))


def test_an_overflow_that_nobody_waited_for_is_told_at_the_end_and_adds_no_traceback(tmp_path):
    command = [sys.executable, "-c", OVERFLOW, str(tmp_path), str(Path(__file__).parents[1])]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert "[overflow 1 times]" in done.stderr
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.strip().endswith("ValueError: of the user")


def write_some(writer):
    writer.parent("Mint.add.0.forward", "Cell.a.A.forward.0")
    writer.stack("Mint.add.0.forward", ("File a.py, line 1, in f, \n x",))
    told = {"type": "mindspore.Tensor", "dtype": "Float32", "shape": [2], "Max": float("nan"), "md5": "00000001"}
    writer.value("Mint.add.0.forward", "input_args", [0], told)
    writer.value("Mint.add.0.forward", "output", [0], told)


def test_a_journal_reads_as_the_files_that_are_made_of_it_and_a_living_one_stays(tmp_path):
    folder = tmp_path / "step3" / "rank1"
    writer = DumpWriter(folder, DebuggerConfig.of({"task": "md5", "level": "L1", "dump_path": str(tmp_path)}))
    write_some(writer)
    assert find_dumps(tmp_path) == {(3, 1): folder / JOURNAL}
    journal, stacks = read_dump(folder / JOURNAL), stack_of(folder / "stack.json")
    assert recover(tmp_path) == []
    writer.finish()
    assert find_dumps(tmp_path) == {(3, 1): folder / "dump.json"}
    files = read_dump(folder / "dump.json")
    assert repr(journal.entries) == repr(files.entries)
    assert (journal.task, journal.level, journal.parents) == (files.task, files.level, files.parents)
    assert stacks == stack_of(folder / "stack.json") == {"Mint.add.0.forward": "File a.py, line 1, in f, \n x"}
