"""The names of a run's files: one place gives them, and finds them again."""

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from asd.rundir.names import event_files, evidence_folder, status_files


def test_event_logs_are_found_the_oldest_part_of_each_first(tmp_path):
    names = "ingest.jsonl.1 ingest.jsonl rank0.jsonl rank1.jsonl.10 rank1.jsonl.9 rank1.jsonl.1 rank1.jsonl"
    logs = names.split()
    for name in reversed(logs):
        (tmp_path / f"events-{name}").touch()
    assert [path.name for path in event_files(tmp_path)] == [f"events-{name}" for name in logs]


def test_nothing_else_is_taken_for_an_event_log_or_a_status(tmp_path):
    logs = "events-rank.jsonl events-rankx.jsonl events-rank0.jsonl.gz xevents-rank0.jsonl events-rank\uff11.jsonl"
    for name in f"{logs} .events-rank0.jsonl.swp status-rank.json status-rank0.json~".split():
        (tmp_path / name).touch()
    (tmp_path / "events-rank5.jsonl").mkdir()
    (tmp_path / "status-rank5.json").mkdir()
    assert event_files(tmp_path) == []
    assert status_files(tmp_path) == []


def test_a_folder_that_is_none_holds_nothing(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "missing", tmp_path / "file"):
        assert event_files(folder) == status_files(folder) == []


RUNS = st.one_of(
    st.text(max_size=200),
    st.sampled_from(["", ".", "..", "../../etc", "a/b", "/absolute", "特征值" * 50, "a\nb", "\0", "CON", "\ud800"]),
)


@given(RUNS)
def test_evidence_stays_inside_its_folder_and_any_name_of_a_run_makes_one(tmp_path_factory, run):
    run_dir = tmp_path_factory.mktemp("run")
    folder = evidence_folder(run_dir, run, 0, 1)
    folder.mkdir(parents=True)
    assert Path(os.path.realpath(folder)).parent.parent == Path(os.path.realpath(run_dir)) / "evidence"


@given(st.text(max_size=200), st.text(max_size=200))
def test_two_runs_never_share_a_folder(first, second):
    same = evidence_folder(Path("r"), first, 0, 1) == evidence_folder(Path("r"), second, 0, 1)
    assert same == (first == second) or {first, second} <= {"", "run"}
