"""Lines come back in order, each once, and however many there are, memory stays as it is."""

import errno
import os
import subprocess
import sys
import tempfile

import pytest

from asd import Event, Level
from asd.cli.shared.event_spool import EventSpool
from asd.errors import StateError
from tests.support.events import made_of


def shown(spool, limit=None):
    return [text for part in spool.in_order(limit) for text in part]


def test_lines_of_the_same_time_stay_in_the_order_they_came_in():
    with EventSpool() as spool:
        spool.add([(b"a", 2.0, "a"), (b"b", 1.0, "b")])
        spool.add([(b"c", 2.0, "c"), (b"d", 1.0, "特征值\ufffd")])
        assert shown(spool) == ["b", "特征值\ufffd", "a", "c"]
        assert shown(spool, 3) == ["特征值\ufffd", "a", "c"]
        assert shown(spool, 0) == []


def test_the_first_of_a_kind_counts_even_when_it_is_not_shown():
    with EventSpool() as spool:
        spool.add([(b"a", 3.0, "a"), (b"b", 2.0, None), (b"b", 1.0, "b"), (b"a", 0.0, "again"), (b"c", 4.0, "c")])
        assert shown(spool) == ["a", "c"]
        assert shown(spool, 1) == ["c"]
        assert spool.last_identities(2) == [b"a", b"c"]


def test_no_room_is_one_sentence(monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(StateError, match=r"can't be put in order: .*No space left on device; valid is room .* TMPDIR"):
        EventSpool()


def most_memory(folder):
    """Of `asd events`, in MiB."""
    command = [sys.executable, "-m", "asd", "events", "--json", "--run-dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_maxrss / 1024


def test_memory_does_not_grow_with_the_log(tmp_path):
    line = (
        made_of(
            Event,
            run="run1",
            rank=0,
            host="node7",
            device="Ascend:0",
            step=1234567,
            checkpoint="model.norm_out",
            value=2.5e7,
            limits=(1e6,),
            level=Level.ERROR,
            kind="anomaly",
            rule="threshold",
            feature="l2",
            reason="x" * 4000,
            refused=True,
            time=1.8e9,
        ).to_json()
        + "\n"
    )
    used = []
    for mebibytes in (16, 64):
        with (tmp_path / "events-rank0.jsonl").open("w") as file:
            file.writelines(line.replace("1234567", str(step)) for step in range(mebibytes * 2**20 // len(line)))
        used.append(most_memory(tmp_path))
    assert used[1] - used[0] < 24, used  # 48 MiB more of lines
