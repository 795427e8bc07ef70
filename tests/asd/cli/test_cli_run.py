"""`asd run` becomes the command: same arguments, same exit code, detection on."""

import argparse
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import asd
from asd.cli import main
from asd.cli.train.run import add_arguments, all_devices

BOOTSTRAP = str(Path(asd.__file__).parent / "bootstrap")
PRINT = "import os, sys; print(os.environ['NPU_ASD_ENABLE'], os.environ['PYTHONPATH'].split(':')[0], sys.argv[1:])"


@pytest.fixture
def started(monkeypatch):
    """What would have been executed."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    calls = []
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(os, "execve", lambda *call: calls.append(call))
    return calls


def asd_run(*command, **environ):
    """Runs `asd run` in a process of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NPU_ASD_", "ASD_"))}
    environ = {**kept, "PYTHONPATH": str(Path(asd.__file__).parents[1]), **environ}
    command = [sys.executable, "-m", "asd", "run", *command]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("dashes", [[], ["--"]])
def test_the_arguments_of_the_command_reach_it_untouched(started, dashes):
    with contextlib.suppress(TypeError):  # the real execve never returns
        main(["run", *dashes, "sh", "-c", "echo", "--json", "--", "-x", "ä b"])
    ((program, command, environ),) = started
    assert (Path(program).name, "ASD_RUN" in environ) == ("sh", False)  # the ranks find one name, of all nodes
    assert command == ["sh", "-c", "echo", "--json", "--", "-x", "ä b"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "1"), ({"NPU_ASD_ENABLE": ""}, "1"), ({"NPU_ASD_ENABLE": "3"}, "3"), ({"NPU_ASD_ENABLE": "0"}, "0")],
)
def test_it_is_on_unless_the_environment_says_otherwise(given, expected):
    done = asd_run(sys.executable, "-c", PRINT, "a", "-b", **given)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{expected} {BOOTSTRAP} ['a', '-b']\n", "")


def test_the_exit_code_is_that_of_the_command():
    done = asd_run("sh", "-c", "echo out; echo err >&2; exit 77")
    assert (done.returncode, done.stdout, done.stderr) == (77, "out\n", "err\n")
    assert asd_run("sh", "-c", "kill -9 $$").returncode == -9
    status = asd_run("grep", "SigIgn", "/proc/self/status").stdout
    assert int(status.split()[1], 16) & 0x1001000 == 0  # SIGPIPE, SIGXFSZ


@pytest.mark.parametrize("command", [[], ["/etc/passwd"], ["./broken"]])
def test_a_command_that_can_not_be_started_ends_with_one_sentence_and_code_2(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("broken").write_bytes(b"\x7fELF but no more")
    Path("broken").chmod(0o755)
    done = asd_run(*command)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"asd: COMMAND has the value '{''.join(command)}'")


def test_a_wrong_setting_ends_here_and_the_command_is_never_started(tmp_path):
    done = asd_run("touch", str(tmp_path / "started"), ASD_RULE="none")
    assert done.returncode == 2
    assert done.stderr.startswith("asd: ASD_RULE has the value 'none'")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "started").exists()


def test_the_sitecustomize_that_was_there_runs_as_well(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('the other sitecustomize')")
    done = asd_run(sys.executable, "-c", "print('program')", PYTHONPATH=f"{Path(asd.__file__).parents[1]}:{tmp_path}")
    # Twice, for `asd run` is a Python program itself.
    assert (done.stdout, done.stderr) == ("the other sitecustomize\nthe other sitecustomize\nprogram\n", "")


def test_a_program_without_mindspore_runs_untouched_also_when_it_looks_for_it():
    code = """
import sys
print(sorted(name for name in sys.modules if name.split(".")[0] in ("asd", "mindspore", "numpy")))
sys.path = [entry for entry in sys.path if "site-packages" not in entry]
try:
    import mindspore
except ModuleNotFoundError as error:
    print(error)
"""
    done = asd_run(sys.executable, "-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\nNo module named 'mindspore'\n", "")


def test_a_python_without_asd_says_that_nothing_is_checked(tmp_path):
    (tmp_path / "mindspore").mkdir()
    (tmp_path / "mindspore" / "__init__.py").write_text("name = 'a stand-in'")
    # -S leaves out site-packages and sitecustomize alike, so the bootstrap is imported by hand.
    code = "import sitecustomize, sys; sys.modules['asd'] = None; import mindspore; print(mindspore.name)"
    done = asd_run(sys.executable, "-S", "-c", code, PYTHONPATH=f"{tmp_path}:{Path(asd.__file__).parents[1]}")
    assert (done.returncode, done.stdout) == (0, "a stand-in\n")
    assert (done.stderr[:11], done.stderr.count("\n")) == ("asd: ERROR:", 1)


@pytest.mark.parametrize(
    ("options", "named", "value"),
    [
        (["--ranks", "0"], "--ranks", "'0'"),
        (["--ranks", "2", "--devices", "0,0"], "--devices", "'0,0'"),
        (["--ranks", "2", "--spares", "1", "--devices", "0,1"], "--devices", "'0,1'"),
        (["--ranks", "2", "--hang-timeout", "nan"], "--hang-timeout", "'nan'"),
        (["--spares", "1"], "--spares", "1"),
    ],
)
def test_a_wrong_option_of_a_job_is_one_sentence_and_code_2(tmp_path, options, named, value):
    done = asd_run(*options, "--", "touch", str(tmp_path / "started"), ASD_RUN_DIR=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"asd: {named} has the value {value}")
    assert list(tmp_path.iterdir()) == []


def test_a_job_needs_the_launcher(tmp_path):
    program = tmp_path / "train"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    code = "import sys; sys.executable = '/nowhere/python'; from asd.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "run", "--ranks", "2", str(program)]
    environ = {"PATH": str(tmp_path), "PYTHONPATH": str(Path(asd.__file__).parents[1]), "ASD_RUN_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert (done.returncode, done.stdout) == (1, "")
    assert (done.stderr.count("\n"), "msrun" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "environ", "expected"),
    [
        (["--ranks", "2"], {}, [0, 1]),
        (["--ranks", "2", "--spares", "1"], {}, [0, 1, 2]),
        (["--ranks", "2", "--devices", "3, 1,0"], {}, [3, 1, 0]),
        (["--ranks", "2", "--spares", "1"], {"ASCEND_RT_VISIBLE_DEVICES": "4,5,6,7"}, [4, 5, 6]),
        (["--ranks", "2", "--devices", "7,4"], {"ASCEND_RT_VISIBLE_DEVICES": "4,5,6,7"}, [7, 4]),
    ],
)
def test_the_devices_are_those_that_are_named_or_shown(arguments, environ, expected):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args([*arguments, "train"])
    assert all_devices(args, environ) == expected
