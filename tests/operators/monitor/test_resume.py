"""Where a training is told to resume from."""

import math

import pytest

from asd.config import Config
from asd.errors import StateError
from asd.operators.monitor.resume import checkpoint_to_resume, ends_before
from asd.origin import Origin
from asd.rundir.manifest import Health, checkpoint_places, write_manifest
from asd.rundir.names import event_file
from asd.supervisor.record import Attempt, Record, record_file
from tests.support.events import event_maker


def save(folder, step, rank=0, run="job"):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{run}-step{step}.ckpt"
    path.write_text(f"{run} {rank} {step}")
    write_manifest(path, step=step, origin=Origin(run, rank, "h", "CPU:0"), health=Health())
    return path


def record(folder, *attempts, **more):
    Record("job", attempts=list(attempts), **more).save(folder)
    return Config(protection="document", run_dir=str(folder), run=attempts[-1].run)


def test_what_attempts_ended_with_is_known_but_for_what_a_second_run_took_for_hardware(tmp_path):
    made = event_maker(run="job", rule="adaptive", checkpoint="a")
    found = [made(step=7), made(step=8), made(step=8, kind="replay", verdict="transient"), made(step=9, value=math.nan)]
    lines = [event.to_json() for event in found] + ["damaged by a crash"]
    assert ends_before(tmp_path, 0) == {}
    event_file(tmp_path, 0).write_text("\n".join(lines))
    assert ends_before(tmp_path, 0) == {7: {"a": found[0]}}


def test_without_a_supervisor_it_is_the_newest_healthy_one(tmp_path):
    config = Config(protection="document", run_dir=str(tmp_path / "run"))
    assert checkpoint_to_resume(tmp_path, config=config) is None
    save(tmp_path, 2)
    newest = save(tmp_path, 4)
    assert checkpoint_to_resume(tmp_path, config=config) == newest
    newest.write_text("damaged")
    assert checkpoint_to_resume(str(tmp_path), config=config).name == "job-step2.ckpt"


def test_the_first_attempt_of_a_job_begins_anew_whatever_lies_there(tmp_path):
    save(tmp_path / "kept", 4)
    assert checkpoint_to_resume(tmp_path / "kept", config=record(tmp_path, Attempt("job", [0, 1]))) is None


def test_after_a_supervisor_it_is_the_newest_one_that_the_supervisor_trusts(tmp_path):
    saved, _ = save(tmp_path, 4), save(tmp_path, 6)
    config = record(tmp_path, Attempt("job", [0, 1], judged=True), distrusted={"job": 5})
    assert checkpoint_to_resume(tmp_path, config=config) == saved


def test_under_a_supervisor_all_ranks_take_the_step_that_it_chose(tmp_path):
    own = {}
    for rank in (0, 1):
        for step in (2, 4, 6):
            own[rank, step] = save(tmp_path / f"rank{rank}", step, rank)
    config = record(tmp_path, Attempt("job", [0, 1]), Attempt("job+2", [0, 2], str(own[0, 4]), 4))
    assert checkpoint_to_resume(tmp_path / "rank0", rank=0, config=config) == own[0, 4]
    assert checkpoint_to_resume(tmp_path / "rank1", rank=1, config=config) == own[1, 4]


def test_a_rank_with_checkpoints_of_its_own_never_gets_that_of_another(tmp_path):
    """Its part of weights and moments is another one, as with ZeRO."""
    save(tmp_path / "rank1", 2, rank=1)
    chosen = save(tmp_path / "rank0", 4)
    config = record(tmp_path, Attempt("job", [0, 1]), Attempt("job+2", [0, 1], str(chosen), 4))
    with pytest.raises(StateError, match="rank 1 .* has no good one of step 4"):
        checkpoint_to_resume(tmp_path / "rank1", rank=1, config=config)


def test_of_the_step_in_a_file_of_an_earlier_job_that_a_user_named_each_rank_takes_its_own(tmp_path):
    own = [save(tmp_path / f"rank{rank}", 4, rank, run="earlier") for rank in (0, 1)]
    config = record(tmp_path, Attempt("job", [0, 1], str(own[0]), 4))
    assert [checkpoint_to_resume(tmp_path / f"rank{rank}", rank=rank, config=config) for rank in (0, 1)] == own


def test_a_rank_without_checkpoints_takes_that_of_the_rank_that_writes_for_all_and_none_of_another_job(tmp_path):
    save(tmp_path / "kept", 4, rank=1, run="other")
    chosen = save(tmp_path / "kept", 4)
    config = record(tmp_path, Attempt("job", [0, 1]), Attempt("job+2", [0, 2], str(chosen), 4))
    for folder in ("kept", "missing"):
        assert checkpoint_to_resume(tmp_path / folder, rank=1, config=config) == chosen


def test_of_those_without_a_manifest_that_the_supervisor_chose_each_rank_takes_its_own(tmp_path):
    for rank in (0, 1):
        (tmp_path / f"{rank}").mkdir()
        (tmp_path / f"{rank}" / "bare.ckpt").write_text("weights")
    config = record(tmp_path, Attempt("job", [0]), Attempt("job+2", [0], str(tmp_path / "0" / "bare.ckpt"), -1))
    taken = [checkpoint_to_resume(tmp_path / f"{rank}", rank=rank, config=config).parent.name for rank in (0, 1, 2)]
    assert taken == ["0", "1", "0"]
    assert {path.name for path in checkpoint_places(tmp_path)} == {"0", "1"}  # where to look after the next crash


def test_that_nothing_can_be_taken_is_said_with_each_one_that_is_left_out(tmp_path, caplog):
    for step in (2, 4):
        save(tmp_path, step).write_text("damaged")
    assert checkpoint_to_resume(tmp_path, config=Config(protection="document", run_dir=str(tmp_path / "run"))) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3


def test_a_damaged_record_is_an_error(tmp_path):
    record_file(tmp_path).write_text("{")
    with pytest.raises(StateError, match="supervisor.json is corrupt"):
        checkpoint_to_resume(tmp_path, config=Config(protection="document", run_dir=str(tmp_path)))
