"""The isolator `slurm` without Slurm: recorded lines, and programs that fail. The real one is in tests/stack."""

import pytest

from asd.errors import IsolationError
from asd.exporters.isolators import make_isolator
from asd.exporters.isolators.marks import reason_for
from asd.exporters.isolators.slurm.node import NODE_NAME, SlurmJobs, parse_node
from asd.isolator import Device, IsolationOwner

LINE = "NodeName=n1 CoresPerSocket=1  CPUAlloc=0 Gres=npu:8 NodeAddr=127.0.0.1 State={} Weight=1 ExtSensorsTemp=n/s{}"
ONE = Device("n1", "Ascend:3", 3)


def line(state, reason=None):
    """A line as Slurm 22.05 prints it."""
    return LINE.format(state, "" if reason is None else f" Reason={reason} [root@2026-11-21T13:29:15]") + "\n"


@pytest.mark.parametrize(
    ("state", "reason", "held"),
    [
        ("IDLE", None, IsolationOwner.FREE),
        ("ALLOCATED", None, IsolationOwner.FREE),
        ("DOWN*+NOT_RESPONDING", "Not responding", IsolationOwner.FREE),
        ("DOWN", None, IsolationOwner.OTHERS),
        ("DOWN", "broken", IsolationOwner.OTHERS),
        ("IDLE+DRAIN", None, IsolationOwner.OTHERS),
        ("MIXED*+DRAIN", "ASD is the name of my dog", IsolationOwner.OTHERS),
        ("IDLE+DRAIN", "ASD 80818C00 nonsense", IsolationOwner.OTHERS),
        ("IDLE+DRAIN", "not ASD 80818C00 Ascend:3 evt-1", IsolationOwner.OTHERS),
        ("IDLE+DRAIN", "ASD 80818C00 Ascend:3 evt-1 and mine", IsolationOwner.OTHERS),
        ("IDLE+DRAIN", "x State=IDLE Reason=ASD 80818C00 Ascend:3 evt-1", IsolationOwner.OTHERS),
        ("IDLE+DRAIN", "ASD 80818C00 Ascend:3 evt-1", IsolationOwner.OURS),
        ("MIXED+DRAIN", "ASD 80818C00 Ascend:4 evt-1, Ascend:3 evt-2", IsolationOwner.OURS),
        ("IDLE+DRAIN", "ASD 80818C00 Ascend:4 evt-1", IsolationOwner.FREE),
        ("IDLE", "ASD 80818C00 Ascend:3 evt-1", IsolationOwner.FREE),
        ("DOWN+NOT_RESPONDING", "ASD 80818C00 Ascend:3 evt-1", IsolationOwner.FREE),
    ],
)
def test_who_holds_a_node_is_read_from_its_state_and_reason(state, reason, held):
    assert parse_node(line(state, reason)).held("Ascend:3") is held


@pytest.mark.parametrize(
    "text", ["", "Node n9 not found", "NodeName=n1", "State=IDLE", "\x00" * 100, "NodeName=n1 State=IDLE"]
)
def test_what_is_no_line_of_a_node_is_not_taken_for_one(text):
    assert parse_node(text) is None


def test_a_reason_is_read_as_it_was_written():
    marks = {"Ascend:3": "evt-1", "%E6%98%87:1": "evt-2", "CPU:1": "evt-3"}
    assert parse_node(line("IDLE+DRAIN", reason_for(marks))).marks == marks


@pytest.mark.parametrize(
    "name", ["n[0-3]", "n0,n1", "ALL", "all", "DEFAULT", "n0 n1", "", "-n", "n0\n", "n" * 256, "节点"]
)
def test_a_name_that_could_mean_many_nodes_is_none(name):
    assert NODE_NAME.fullmatch(name) is None


@pytest.fixture
def program(tmp_path):
    """Makes a program that stands in for `scontrol` when it fails."""

    def make(script):
        path = tmp_path / "scontrol"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return make_isolator("slurm", scontrol=str(path), timeout=0.5)

    return make


@pytest.mark.parametrize(
    ("script", "said", "retry"),
    [
        ("exec sleep 30", r"scontrol did not answer within 0.5 s", True),
        ("exit 1", "exit code 1 and no output", True),
        (
            "echo 'slurm_load_node error: Unable to contact\n slurm controller' >&2; exit 1",
            "'slurm_load_node error: Unable to",
            True,
        ),
        ("echo Node n1 not found; exit 1", "Slurm has no node n1; ", False),
        ("head -c 3000 /dev/urandom", "node n1: exit code 0", True),
        ("kill -9 $$", "exit code 137|exit code -9", True),
    ],
)
def test_a_program_that_fails_is_told_in_one_sentence(program, script, said, retry):
    for call in (program(script).held, program(script).release, lambda one: program(script).isolate(one, "why", "e")):
        with pytest.raises(IsolationError, match=said) as caught:
            call(ONE)
        assert caught.value.retry is retry
        assert "\n" not in str(caught.value)


def test_jobs_are_where_squeue_says_and_stay_there_while_it_does_not(tmp_path):
    program, now = tmp_path / "squeue", [0.0]
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/said || exit 1\n")
    program.chmod(0o755)
    jobs = SlurmJobs(str(program), lambda: now[0])
    for said, found in (("7|n[08-10,12]x[0-1],login\n8|\n77|n1\n", 9), ("7|n1\n", 1), (None, 1)):
        (tmp_path / "said").unlink() if said is None else (tmp_path / "said").write_text(said)
        now[0] += 11
        assert jobs.look() == []
        assert bool(jobs.problem) is (said is None)
        assert [len(jobs.hosts(name)) for name in ("slurm-7", "slurm-7.0", "slurm-8", "llama")] == [found, found, 0, 0]


def test_a_program_that_is_not_there_is_not_tried_again(tmp_path):
    with pytest.raises(IsolationError, match="can't be started") as caught:
        make_isolator("slurm", scontrol=str(tmp_path / "missing")).held(ONE)
    assert not caught.value.retry


@pytest.mark.parametrize(("words", "retry"), [("Invalid user id", False), ("Socket timed out", True)])
def test_a_change_that_has_no_effect_is_an_error_whatever_the_exit_code_says(program, words, retry):
    show = f"[ $1 = --oneliner ] && echo '{line('IDLE').strip()}' && exit 0"
    for code in (0, 1):
        isolator = program(f"{show}\necho 'slurm_update error: {words}' >&2; exit {code}")
        with pytest.raises(IsolationError, match=f"had no effect .*{words}.*its state is IDLE") as caught:
            isolator.isolate(ONE, "why", "e")
        assert caught.value.retry is retry


def test_a_change_that_has_its_effect_is_done_whatever_the_exit_code_says(program, tmp_path):
    (tmp_path / "state").write_text(line("IDLE"))
    (tmp_path / "after").write_text(line("IDLE+DRAIN", "ASD 80818C00 Ascend:3 evt-e"))
    isolator = program(
        f"cd {tmp_path}; [ $1 = --oneliner ] && cat state && exit 0\ncp after state; echo error >&2; exit 1"
    )
    isolator.isolate(ONE, "why", "e")
    assert isolator.held(ONE) is IsolationOwner.OURS
