"""The command line itself, shown by `asd env`: what it prints, and which exit codes it gives."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import asd
from asd import cli
from asd.cli import main

STRIKES = ("--strikes", "--window", "--many")


def test_it_shows_every_setting_with_its_source(monkeypatch, capsys):
    monkeypatch.setenv("NPU_ASD_UPPER_THRESH", " 100 , 50 ")
    assert main(["env"]) == 0
    printed = {line.split()[0]: line.split()[1:3] for line in capsys.readouterr().out.splitlines() if line}
    assert printed["NPU_ASD_UPPER_THRESH"] == ["100,50", "environment"]
    assert printed["ASD_RULE"] == ["adaptive", "default"]


def test_on_a_terminal_wide_columns_are_wrapped_and_in_a_pipe_lines_are_whole(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    for setting in ("ASD_RUN_DIR", "ASD_NODE"):
        monkeypatch.setenv(setting, "x" * 120)
    assert main(["env"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) > 200
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["env"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_json_has_the_same_for_programs(monkeypatch, capsys):
    monkeypatch.setenv("ASD_RUN_DIR", "a folder")
    assert main(["env", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    folder = next(setting for setting in report["settings"] if setting["name"] == "ASD_RUN_DIR")
    assert (folder["value"], folder["source"]) == ("a folder", "environment")
    assert report["unread"] == []
    packages = {"mindspore-asd", "python", "mindspore", "mindformers", "numpy", "prometheus_client"}
    assert set(report["machine"]) == {*packages, "start-up file"}


def test_it_says_which_file_makes_the_switch_enough_and_whether_it_did(monkeypatch, capsys, tmp_path):
    def told():
        assert main(["env", "--json"]) == 0
        return json.loads(capsys.readouterr().out)["machine"]["start-up file"]

    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path)])
    monkeypatch.setattr("site.ENABLE_USER_SITE", False)
    monkeypatch.setenv("NPU_ASD_ENABLE", "1")
    monkeypatch.delitem(sys.modules, "mindspore_asd_start", raising=False)
    assert told() is None
    (file := tmp_path / "mindspore_asd.pth").touch()
    assert told() == f"{file}, not active"
    monkeypatch.setitem(sys.modules, "mindspore_asd_start", sys)
    assert told() == f"{file}, active"


def test_what_is_not_read_is_pointed_out(monkeypatch, capsys):
    for name in ("NPU_ASD_ENABLED", "ASD_REPLAY"):
        monkeypatch.setenv(name, "1")
    assert main(["env"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "not read" in line)
    assert line.endswith(": ASD_REPLAY (use ASD_OPTIONS=replay:1), NPU_ASD_ENABLED (use NPU_ASD_ENABLE)")


def test_the_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert re.fullmatch(r"asd (\S+) \(commit [0-9a-f]{12}(-dirty)?\)\n", capsys.readouterr().out)[1] == asd.__version__


WRONG = {  # and what the sentence names
    "nothing": "nothing",
    "--nothing": "--nothing",
    "env --nothing": "--nothing",
    "env --js": "--js",
    "demo --steps 19": "--steps has the value 19",
    "demo --steps many": "--steps",
    "demo --mode eager": "--mode",
    "demo --fault flip": "fault has the value 'flip'",
    "demo --fault gradient:norm:flip=30:step=1": "--fault",
    "demo --step 30": "--step 30",
    "selftest --seconds -1": "--seconds has the value '-1'",
    "selftest --seconds inf": "--seconds has the value 'inf'",
    "selftest --seconds 5 --mode eager": "--mode",
    "selftest --seconds 5 --only gate": "--only has the value ['gate']",
    "tune . --budget often": "--budget has the value 'often'",
    "tune . --warnings 1e-9": "--warnings has the value 1e-09",
    "tune .": "ASD_OPTIONS=record:1",
    "events --rank=one": "--rank has the value 'one'",
    "devices release": "HOST DEVICE has the value ''",
    "devices release node7 Ascend:3 --serial SN2": "--serial has the value 'SN2'",
    "ingest --once nowhere.log": "PATH has the value 'nowhere.log'",
    "exporter --port 65536": "--port has the value '65536'",
    "exporter --checkpoints all": "--checkpoints has the value 'all'",
    "exporter --device-map nothing.json": "--device-map has the value 'nothing.json'",
    "exporter --web-config nothing.yml": "'nothing.yml'",
    "exporter --address 192.0.2.1": "'192.0.2.1:9464'",
    "report . -o .": "--output has the value '.'",
    "report . -o /dev/null": "--output has the value '/dev/null'",
    "handler --once --release-after -2": "--release-after",
    "handler --once --metrics x:70000": "--metrics",
    f"handler --once --metrics x:{'9' * 5000}": "--metrics",
    "handler --once --lease asd/handler": "--lease",
} | {f"{each} {option} 0": option for each in ("exporter", "report .", "handler") for option in STRIKES}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_usage_is_one_sentence_that_names_it_code_2_and_leaves_nothing(words, capsys, tmp_path):
    assert main(words.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err[:5]) == ("", 1, "asd: ")
    assert WRONG[words] in err
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--isolator hammer", "--option x", "--web-config w", "--agents kubernetes:a/b=c"])
def test_a_handler_that_can_not_begin_as_it_is_told_is_code_2(option, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    if "kubernetes" in option:
        pytest.importorskip("lightkube")
    assert main(["handler", "--once", *option.split()]) == 2
    assert capsys.readouterr().err.startswith("asd: ")


def test_no_command_lists_the_commands_and_gives_code_2(capsys):
    assert main([]) == 2
    assert "  env  " in capsys.readouterr().err


@pytest.mark.parametrize(("name", "alias"), cli.ALIASES.items())
def test_an_alias_is_its_command(name, alias, capsys):
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert main([alias, "--help"]) == 0
    assert capsys.readouterr().out == text
    assert cli.parser_of(alias).format_help() == cli.parser_of(name).format_help() == text


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (asd.ConfigError("--steps", 0, "it must be at least 1"), 2, "asd: --steps has the value 0"),
        (asd.StateError("the state is corrupt."), 1, "asd: the state is corrupt.\n"),
        (asd.UnsupportedError("this mode cannot be checked."), 1, "asd: this mode cannot be checked.\n"),
        (FileNotFoundError(2, "No such file or directory", "run/x"), 1, "asd: run/x: No such file or directory.\n"),
        (OSError("the disk is gone"), 1, "asd: the disk is gone.\n"),
        (KeyboardInterrupt(), 130, "asd: interrupted.\n"),
        (ModuleNotFoundError("no", name="mindspore.nn"), 1, "asd: `asd env` needs mindspore"),
    ],
)
def test_an_error_is_a_sentence_and_an_exit_code(monkeypatch, capsys, error, code, said):
    def fail(environ):
        raise error

    monkeypatch.setattr("asd.cli.train.env.describe", fail)
    assert main(["env"]) == code
    assert capsys.readouterr().err.startswith(said)


def test_a_fault_of_our_own_keeps_its_traceback(monkeypatch):
    def fail(environ):
        raise ModuleNotFoundError("no", name="asd.nothing")

    monkeypatch.setattr("asd.cli.train.env.describe", fail)
    with pytest.raises(ModuleNotFoundError):
        main(["env"])


def command(arguments, **options):
    environ = {**os.environ, "PYTHONPATH": str(Path(asd.__file__).parents[1])}
    return subprocess.run([sys.executable, "-m", "asd", *arguments], env=environ, text=True, check=False, **options)


def test_a_reader_that_leaves_early_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        done = command(["env"], stdout=closed, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (141, "")
