"""Which devices an attempt gets, and what they are called."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd.config import visible_devices
from asd.origin import device_name, mounted_chips
from asd.supervisor.own_handler import Devices
from asd.supervisor.processes import launch
from asd.supervisor.record import Attempt


def test_the_first_devices_begin_and_of_two_suspects_the_older_suspicion_is_the_lesser():
    assert Devices([7, 4, 5], 2).choose() == [4, 7]
    devices = Devices([0, 1, 2], 2)
    devices.bench += [1, 0]
    assert devices.choose() == [1, 2]


sets = st.sets(st.integers(0, 7))


@given(st.integers(1, 8), sets, st.lists(st.integers(0, 7), unique=True))
def test_no_device_works_twice_or_is_out_and_none_waits_without_need(ranks, out, bench):
    devices = Devices(range(8), ranks)
    devices.bench, devices.out = bench, dict.fromkeys(out, "broken")
    chosen = devices.choose()
    usable = set(range(8)) - out
    assert chosen == sorted(set(chosen))
    assert set(chosen) <= usable
    assert len(chosen) == (ranks if len(usable) >= ranks else 0)
    if set(chosen) & set(bench):
        assert chosen
        assert usable - set(bench) <= set(chosen)  # a suspect works only when everybody else does


# MindSpore's number, ASCEND_RT_VISIBLE_DEVICES, the chips in /dev, and what the node calls the device.
RECORDED = [
    (1, "4,5,6,7", range(8), "Ascend:5"),  # rank 1 of four on a node of eight
    (1, "7, 4", range(8), "Ascend:7"),  # MindSpore sorts the list
    (3, "", range(8), "Ascend:3"),
    (0, "", [3], "Ascend:3"),  # a pod with one chip
    (1, "", [3, 5, 6], "Ascend:5"),
    (0, "1,2", [3, 5, 6], "Ascend:5"),  # in a pod that shows its process two of three
    (2, "0", [], "Ascend:2"),  # no device files at all
]


@pytest.mark.parametrize(("number", "visible", "chips", "name"), RECORDED)
def test_a_device_is_called_by_its_number_on_the_node(tmp_path, monkeypatch, number, visible, chips, name):
    for file in ("davinci_manager", "davinci", *(f"davinci{chip}" for chip in chips)):
        (tmp_path / file).touch()
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", visible)
    assert device_name("Ascend", number, visible_devices(), mounted_chips(tmp_path)) == name
    assert device_name("CPU", number, visible_devices(), mounted_chips(tmp_path)) == f"CPU:{number}"


def test_the_processes_of_a_job_in_a_container_are_told_what_cann_counts_there(tmp_path, monkeypatch):
    monkeypatch.setattr("asd.supervisor.processes.mounted_chips", lambda: [3, 5, 6])
    launcher = tmp_path / "msrun"
    launcher.touch(mode=0o700)
    _, environ = launch([str(launcher)], {"PATH": str(tmp_path)}, Attempt("job", [3, 6]), tmp_path)
    assert environ["ASD_DEVICES"] == "3,6"
    assert environ["ASCEND_RT_VISIBLE_DEVICES"] == "0,2"
