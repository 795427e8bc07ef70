"""Serials and hardware that `npu-smi` reports, in the events that an agent takes in and in what it lists."""

import json
import time
from dataclasses import asdict

import pytest

from asd.exporters.prometheus.agent import Agent
from asd.exporters.prometheus.device_map import npu_smi_map
from asd.exporters.run_files.event_log import EventLog
from asd.judge.status import Status
from asd.origin import Hardware
from asd.rundir.names import event_file, status_file
from tests.support.events import event_maker

event = event_maker()
PROGRAM = r"""#!/bin/sh
case "$*" in
"info -m") printf '\tNPU ID   Chip ID   Chip Logic ID   Chip Name\n\t4   0   0   Ascend 910B3\n\t4   1   -   Mcu\n'
           printf '\t5   0   1   Ascend 910B3\n\t6   0   2   Ascend 910B3\n\t7   0   3   Ascend 910B3\n' ;;
"info -t board -i 4 -c 0") printf '\tVDie ID                        : 4C4B2C33 020F5C7F 1A2B\n' ;;
"info -t board -i 4") printf '\tSerial Number : NA\n\tFirmware Version : 7.1.0.7.220\n\tSlot ID : 2\n' ;;
"info -t board -i 5") printf '\tSerial Number                  : 1023A5\n\tSoftware Version               : 23.0.5\n' ;;
"info -t board -i 6") exec sleep $HANGS ;;
esac
"""


LIES = [{}, {"serial": "1023A5", "device_number": 1}, {"serial": "made up", "device_number": 7}, {"device_number": 7}]
LIES += [{"hardware": Hardware("made up", cann="9")}]
MODEL = "Ascend 910B3"


@pytest.mark.parametrize("lie", LIES)
def test_events_get_serials_of_devices_from_the_agent_alone_whatever_a_job_writes(tmp_path, monkeypatch, lie, caplog):
    program = tmp_path / "npu-smi"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("HANGS", "0" if lie else "9")
    monkeypatch.setattr("asd.exporters.prometheus.device_map._SECONDS", 2.0)
    monkeypatch.setattr("asd.exporters.prometheus.device_map._INSTALLED", tmp_path)
    (tmp_path / "driver").mkdir()
    (tmp_path / "driver" / "version.info").write_text("Version=24.1.0\nascendhal_version=7.35.23\n")
    run = tmp_path / "run"
    run.mkdir()
    names = [*(f"Ascend:{rank}" for rank in range(3)), *(chr(64 + rank) * 512 for rank in range(3, 30))]
    for rank, old in enumerate([0, 0, 900] + 27 * [0]):
        told = event(1, device=names[rank], rank=rank).origin
        status = Status(origin=told, written=time.time() - old, active=rank != 1, cann=f"8.{rank}")
        status_file(run, rank).write_text(status.to_json())
    for each in (told := [event(1, device=name, **lie) for name in ("Ascend:0", "Ascend:1", "Ascend:9", "CPU:0")]):
        EventLog(event_file(run, 0))(each)
    agent = Agent([run], devices=npu_smi_map())
    agent.poll()
    kept = agent.journal.recent()
    fleet = json.loads(agent.journal.fleet)
    agent.close()
    serials = [(each.serial, each.device_number) for each in kept]
    assert serials == [("4C4B2C33 020F5C7F 1A2B", 0), ("1023A5", 1), ("", -1), ("", -1)]
    parts = Hardware(MODEL, "7.1.0.7.220", "24.1.0", "8.0", "2")
    assert [each.hardware for each in kept[:2]] == [parts, Hardware(MODEL, "", "23.0.5")]
    assert [each.hardware for each in kept[2:]] == [Hardware(driver="24.1.0"), Hardware()]
    assert ["node7", "Ascend:0", serials[0][0], asdict(parts)] in fleet
    assert 10 < len(fleet) < 28
    assert len(json.dumps(fleet)) < 16_000
    assert not {"Ascend:1", "Ascend:2"} & {device for _, device, *_ in fleet}
    assert [each.id for each in kept] == [each.id for each in told]
    assert [line.split("`")[1] for line in caplog.messages] == ([] if lie else ["npu-smi info -t board -i 6"])
