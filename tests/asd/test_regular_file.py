"""Files that anybody may have put there."""

import os

import pytest

from asd import StateError
from asd.dumps.formats.json_file import read_json
from asd.dumps.formats.npy_file import NpyFile
from asd.dumps.formats.torch_file import TorchFile
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.exporters.isolators.hostfile import HostFile
from asd.exporters.prometheus.device_map import read_device_map
from asd.exporters.prometheus.event_journal import EventJournal
from asd.exporters.run_files.event_log import EventLog, read_events
from asd.handler.inputs.targets import FileTargets
from asd.records import load
from asd.regular_file import open_regular, read_regular
from asd.rundir.disk import take_lock
from tests.support.events import event_maker

FOLLOW_NO_LINK = {
    "read": open_regular,
    "changed": lambda path: open_regular(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC),
    "lock": take_lock,
    "event log": lambda path: EventLog(path).append(b"{}\n"),
    "events": read_events,
    "journal": lambda path: EventJournal(path).add([event_maker()(1)]),
}
FOLLOW_LINKS = {
    "read": lambda path: read_regular(path, links=True),
    "state": lambda path: load(path, "state", "one"),
    "agents": FileTargets,
    "hosts": lambda path: HostFile(hosts=path).nodes(),
    "device map": read_device_map,
    "config": DebuggerConfig.read,
    "dump": read_json,
    "npy": NpyFile,
    "pt": TorchFile,
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "file").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for a writer
    return tmp_path


@pytest.mark.parametrize("use", FOLLOW_NO_LINK)
def test_a_link_is_neither_followed_nor_changed(folder, use):
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises((OSError, StateError), match="symbolic link"):
        FOLLOW_NO_LINK[use](folder / "link")
    assert (len(os.listdir("/proc/self/fd")), (folder / "file").read_text()) == (before, "precious")


@pytest.mark.parametrize("use", [*FOLLOW_NO_LINK.values(), *FOLLOW_LINKS.values()])
def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(folder, use):
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises((OSError, ValueError), match="no regular file"):
        use(folder / "pipe")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_has_as_many_bytes_as_it_may_have_or_is_not_read(folder):
    assert read_regular(folder / "link", 8, links=True) == b"precious"
    with pytest.raises(OSError, match="it has 8 bytes; the limit is 7"):
        read_regular(folder / "file", 7)
