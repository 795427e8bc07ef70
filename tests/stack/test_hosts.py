"""The units and settings of deploy/hosts, by the programs that read them."""

import argparse
import importlib
import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from real_programs import binary, get

from asd.cli import COMMANDS
from tests.support.ports import free_port

HOSTS = Path(__file__).parents[2] / "deploy" / "hosts"
RANK = Path(__file__).parent / "programs" / "striking_rank.py"
AGENT, HANDLER = UNITS = ("asd-agent.service", "asd-handler.service")
MOST_EXPOSED = 2.0
OF_ROOT = {"fchown"}  # SQLite gives its files the owner of the database, when root runs it, as here
pytestmark = pytest.mark.stack


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)


def settings(unit):
    """The lines of a unit, a list for each name."""
    found = {}
    for name, value in re.findall(r"^([A-Z]\w+)=(.*)$", (HOSTS / unit).read_text(), re.M):
        found.setdefault(name, []).append(value)
    return found


def command(unit):
    """What a unit runs, with the settings that are shipped."""
    (words,) = settings(unit)["ExecStart"]
    more = dict(re.findall(r"^(\w+)=(.*)$", (HOSTS / "handler.env").read_text(), re.M))
    return shlex.split(re.sub(r"\$(\w+)", lambda match: more.get(match[1], ""), words.replace("%H", "node7")))


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_takes_the_unit_and_thinks_well_of_its_hardening(unit, tmp_path):
    copy = tmp_path / unit
    copy.write_text((HOSTS / unit).read_text().replace("/opt/asd/bin/asd", f"{sys.prefix}/bin/asd"))
    assert "RestartPreventExitStatus" not in settings(unit)  # the files that it waits for may come after its start
    done = run(binary("systemd-analyze"), "verify", copy)
    told = [line for line in (done.stdout + done.stderr).splitlines() if unit in line]
    assert (done.returncode, told) == (0, [])
    done = run(binary("systemd-analyze"), "security", "--offline=yes", "--no-pager", copy)
    (exposure,) = re.findall(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert float(exposure) <= MOST_EXPOSED, done.stdout


@pytest.mark.parametrize("unit", UNITS)
def test_the_command_of_a_unit_is_one(unit):
    program, name, *words = command(unit)
    assert program == "/opt/asd/bin/asd"
    parser = argparse.ArgumentParser(exit_on_error=False)
    importlib.import_module(COMMANDS[name][0]).add_arguments(parser)
    parser.parse_args(words)


def members(group):
    """The system calls in a group of systemd's, those of the groups in it included."""
    text = run(binary("systemd-analyze"), "--no-pager", "syscall-filter", group).stdout
    words = re.findall(r"^    ([@\w-]+)", text, re.M)
    return {name for word in words for name in (members(word) if word.startswith("@") else {word})}


def allowed(unit):
    """The system calls that a unit allows."""
    names = set()
    for line in settings(unit)["SystemCallFilter"]:
        groups = {name for group in line.removeprefix("~").split() for name in members(group)}
        names = names - groups if line.startswith("~") else names | groups
    return names


def test_agent_and_handler_make_no_system_call_that_their_units_forbid(start, tmp_path):
    port, shown = free_port(), free_port()
    runs, agents, hosts = tmp_path / "runs", tmp_path / "agents.json", tmp_path / "hosts"
    (runs / "job").mkdir(parents=True)
    (runs / "job" / "go").touch()
    hosts.write_text("node7\nnode8\n")
    agents.write_text(json.dumps([{"targets": [f"127.0.0.1:{port}"], "labels": {"node": "node7"}}]))
    rank = start(sys.executable, RANK, ASD_RUN_DIR=str(runs / "job"), ASD_NODE="node7")
    states = {unit: tmp_path / unit[:5] / "state.sqlite" for unit in UNITS}
    isolator = f"--isolator hostfile --option hosts={hosts} --metrics 127.0.0.1:{shown}"
    commands = {
        AGENT: f"exporter --run-dir {runs} --host=node7 --state {states[AGENT]} --port {port}",
        HANDLER: f"handler --agents {agents} --state {states[HANDLER]} --settle 0 {isolator}",
    }
    (tmp_path / "a").mkdir()
    strace = binary("strace"), "-f", "-qq", "-o"
    asd, home = (sys.executable, "-m", "asd"), str(tmp_path / "h")
    programs = {
        unit: start(*strace, tmp_path / unit, *asd, *words.split(), ASD_RUN_DIR=home)
        for unit, words in commands.items()
    }
    programs[AGENT].eventually(lambda: get(f"http://127.0.0.1:{port}/metrics"), 60)
    programs[HANDLER].eventually(lambda: "asd_handler_device_isolated{" in get(f"http://127.0.0.1:{shown}/metrics"), 60)
    time.sleep(1)
    rank.stop()
    for unit, program in programs.items():
        program.stop()
        calls = set(re.findall(r"^\d+ +(\w+)\(", (tmp_path / unit).read_text(errors="replace"), re.M))
        assert len(calls) > 20
        assert calls - allowed(unit) <= OF_ROOT


def test_the_folders_and_the_user_are_made(tmp_path):
    (tmp_path / "etc").mkdir()
    done = run("systemd-sysusers", f"--root={tmp_path}", HOSTS / "sysusers.conf")
    assert done.returncode == 0, done.stderr
    assert "asd:" in (tmp_path / "etc" / "passwd").read_text()
    done = run("systemd-tmpfiles", f"--root={tmp_path}", "--create", HOSTS / "tmpfiles.conf")
    assert done.returncode == 0, done.stderr
    runs = tmp_path / "var" / "lib" / "asd" / "runs"
    assert [oct(each.stat().st_mode & 0o7777) for each in (runs, runs / "slurm")] == ["0o1777", "0o755"]


def test_folders_of_old_jobs_are_removed_also_those_of_slurm(tmp_path):
    conf, old = tmp_path / "tmpfiles.conf", [tmp_path / "runs" / name for name in ("job", "slurm/42")]
    for folder in old:
        folder.mkdir(parents=True)
    text = (HOSTS / "tmpfiles.conf").read_text().replace("/var/lib/asd", str(tmp_path))
    conf.write_text(text.replace("60d", "0"))
    done = run("systemd-tmpfiles", "--clean", conf)
    assert done.returncode == 0, done.stderr
    assert [each.exists() for each in (*old, tmp_path / "runs" / "slurm")] == [False, False, True]
