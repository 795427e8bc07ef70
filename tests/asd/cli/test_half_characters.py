"""Names that are no Unicode, as JSON can spell them, end no command that reads what runs have left."""

import json
import time

import pytest

from asd.cli import main
from asd.exporters.run_files.event_log import EventLog
from asd.judge.status import Status
from asd.rundir.names import event_file, status_file
from tests.support.events import event_maker, made_of

HALF = "half \ud800"
NAMES = ("run", "host", "device", "checkpoint", "rule", "feature", "reason", "evidence", "key")
event = event_maker(run="llama", rank=0, device="Ascend:3", time=lambda _step: time.time())


@pytest.fixture
def run_dir(tmp_path):
    log = EventLog(event_file(tmp_path, 0))
    for step, name in enumerate(NAMES, 1):
        log(event(step, **{name: HALF}))
        log(event(step, kind="replay", verdict="persistent", **{name: HALF}))
    status = made_of(Status, run=HALF, rank=0, host=HALF, device=HALF, active=True, checkpoints={HALF: (1.0, 2.0)})
    status_file(tmp_path, 0).write_text(status.to_json())
    for rank, name in enumerate(("protections", "anomalies", "dropped"), 1):
        broken = json.loads(status.to_json()) | {"rank": rank, name: {HALF: HALF}}
        status_file(tmp_path, rank).write_text(json.dumps(broken))
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["events"],
        ["events", "--json"],
        ["handler", "--once", "--from-beginning", "--settle", "0"],
        ["devices"],
        ["devices", "--json"],
        ["devices", "--health"],
        ["env", "--training"],
    ],
    ids=" ".join,
)
def test_half_a_surrogate_pair_ends_no_command(run_dir, capfd, words):
    main(["handler", "--once", "--from-beginning", "--run-dir", str(run_dir)])
    capfd.readouterr()
    assert main([*words, "--run-dir", str(run_dir)]) in (0, 1)
    told = capfd.readouterr()
    assert told.out
    assert "surrogates not allowed" not in told.out + told.err


def test_half_a_surrogate_pair_ends_no_report(run_dir, capfd):
    assert main(["report", str(run_dir)]) == 0
    assert "surrogates not allowed" not in capfd.readouterr().err
