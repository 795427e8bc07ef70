"""The serials that `npu-smi` tells, in the events that an agent takes in."""

import pytest

from asd.exporters.prometheus.agent import Agent
from asd.exporters.prometheus.device_map import npu_smi_map
from asd.exporters.run_files.event_log import EventLog
from asd.rundir.names import event_file
from tests.support.events import event_maker

event = event_maker()
PROGRAM = r"""#!/bin/sh
case "$*" in
"info -m") printf '\tNPU ID   Chip ID   Chip Logic ID   Chip Name\n\t4   0   0   Ascend 910B3\n\t4   1   -   Mcu\n'
           printf '\t5   0   1   Ascend 910B3\n' ;;
"info -t board -i 4 -c 0") printf '\tVDie ID                        : 4C4B2C33 020F5C7F 1A2B\n' ;;
"info -t board -i 5") printf '\tSerial Number                  : 1023A5\n' ;;
esac
"""


LIES = [{}, {"serial": "1023A5", "device_number": 1}, {"serial": "made up", "device_number": 7}, {"device_number": 7}]


@pytest.mark.parametrize("lie", LIES)
def test_events_get_the_serial_of_their_device_from_the_agent_alone_whatever_a_job_writes(tmp_path, monkeypatch, lie):
    program = tmp_path / "npu-smi"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    run = tmp_path / "run"
    for each in (told := [event(1, device=name, **lie) for name in ("Ascend:0", "Ascend:1", "Ascend:9", "CPU:0")]):
        EventLog(event_file(run, 0))(each)
    agent = Agent([run], devices=npu_smi_map())
    agent.poll()
    kept = agent.journal.recent()
    agent.close()
    serials = [(each.serial, each.device_number) for each in kept]
    assert serials == [("4C4B2C33 020F5C7F 1A2B", 0), ("1023A5", 1), ("", -1), ("", -1)]
    assert [each.id for each in kept] == [each.id for each in told]
