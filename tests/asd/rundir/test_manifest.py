"""Manifests of checkpoints, and the choice of the one to resume from."""

import hashlib
import json
import os

import pytest

from asd.origin import Origin
from asd.rundir.last_good import last_good
from asd.rundir.manifest import (
    Health,
    checkpoint_places,
    load_manifest,
    manifest_path,
    note_checkpoint_place,
    write_manifest,
)
from asd.verdict import Level
from tests.support.events import event_maker

ORIGIN = {"run": "job", "rank": 0, "host": "node1", "device": "CPU:0"}


anomaly = event_maker(**ORIGIN, checkpoint="norm", value=1e9, reason="test", time=0.0)


def save(folder, step, health=None, **origin):
    """A checkpoint with a manifest."""
    path = folder / f"step{step}-rank{origin.get('rank', 0)}.ckpt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"weights of step {step}")
    write_manifest(path, step=step, origin=Origin(**{**ORIGIN, **origin}), health=health or Health())
    return path


def test_a_manifest_holds_the_hash_of_the_file_and_the_health_of_the_steps_before(tmp_path):
    health = Health()
    harmless = (anomaly(3), anomaly(3, refused=False, healed=True), anomaly(4, level=Level.WARNING, refused=False))
    for event in (*harmless, anomaly(5, kind="follower", refused=False)):
        health.add(event)
    path = save(tmp_path, 6, health)
    manifest = load_manifest(manifest_path(path))
    assert manifest.sha256 == hashlib.sha256(b"weights of step 6").hexdigest()
    assert (manifest.step, manifest.size, manifest.clean) == (6, 17, True)


def test_an_applied_anomaly_taints_every_checkpoint_from_then_on(tmp_path):
    health = Health()
    assert load_manifest(manifest_path(save(tmp_path, 2, health))).clean
    health.add(anomaly(3, refused=False))
    assert load_manifest(manifest_path(save(tmp_path, 2, health))).clean  # a thread has written it only now
    for step in (4, 6):
        assert load_manifest(manifest_path(save(tmp_path, step, health))).tainted_from == 3
    choice = last_good(tmp_path)
    assert choice.path == tmp_path / "step2-rank0.ckpt"
    assert [each.partition(" ")[0] for each in choice.skipped] == [f"{tmp_path}/step{n}-rank0.ckpt" for n in (6, 4)]


PROVED = ["replicas", "known answers", "audit"]


def test_what_another_rank_finds_later_taints_the_checkpoints_since_that_step(tmp_path):
    health = Health()
    files = [save(tmp_path, step, health) for step in (2, 4, 6)]
    assert list(health.taint_from(4)) == []
    assert [load_manifest(manifest_path(file)).tainted_from for file in files] == [0, 4, 4]
    assert load_manifest(manifest_path(save(tmp_path, 8, health))).tainted_from == 4


@pytest.mark.parametrize(
    ("proofs", "alone", "first"),
    [(PROVED, False, True), (PROVED[1:], True, True), (PROVED[1:], False, False), (PROVED[:2], True, False)],
)
def test_after_a_permanent_fault_the_last_checkpoint_comes_first_that_proofs_verified(tmp_path, proofs, alone, first):
    health = Health()
    health.alone = alone
    health.proofs.update(proofs)
    verified = save(tmp_path, 2, health)
    newer, newest = save(tmp_path, 4, health), save(tmp_path, 6, health)  # with no proof since
    assert last_good(tmp_path).path == newest
    choice = last_good(tmp_path, verified=True)
    assert (choice.path, len(choice.skipped)) == ((verified, 2) if first else (newest, 0))
    verified.write_text("damaged")
    assert last_good(tmp_path, verified=True).path == newest
    health.proofs.update(PROVED)
    health.taint(7)
    assert last_good([save(tmp_path, 8, health), newer.parent], verified=True).path == newest


def test_what_a_later_run_in_the_folder_wrote_comes_before_more_steps_of_an_earlier_one(tmp_path):
    save(tmp_path / "old", 1000, run="old")
    new = [save(tmp_path / "new", step) for step in (400, 600)]
    assert [last_good(tmp_path, distrusted=each).path for each in ({"job": 600}, {})] == new


def test_a_run_that_is_distrusted_is_left_but_what_a_later_run_wrote_is_taken(tmp_path):
    for step in (2, 4, 6):
        save(tmp_path / "first", step)
    assert last_good(tmp_path, distrusted={"job": 5}).step == 4
    path = save(tmp_path / "second", 6, run="job+2")
    assert last_good(tmp_path, distrusted={"job": 5}).path == path


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda path: path.write_text("weights of step"), "15 bytes"),
        (lambda path: path.write_text("weights of stap 4"), "SHA-256"),
        (lambda path: manifest_path(path).write_text("{"), "Expecting"),
        (lambda path: manifest_path(path).write_text('{"version": 1}'), "field run"),
    ],
)
def test_a_damaged_checkpoint_or_manifest_is_skipped_with_a_sentence(tmp_path, damage, named):
    older, newer = save(tmp_path, 2), save(tmp_path, 4)
    damage(newer)
    choice = last_good(tmp_path)
    assert choice.path == older
    (skipped,) = choice.skipped
    assert (skipped.startswith(str(newer)), named in skipped, skipped[-1]) == (True, True, ".")


def test_a_checkpoint_that_can_not_be_read_is_skipped(tmp_path):
    older, newer = save(tmp_path, 2), save(tmp_path, 4)
    newer.unlink()
    newer.symlink_to("nothing")
    assert last_good(tmp_path).path == older


PARTS = b"".join(b"\n" + bytes([len(part)]) + part for part in (b"one", b"", b"three" * 20))
LONG = b"\n\x80\x01" + b"x" * 128
TENSORS = (72).to_bytes(8, "little") + b'{"__metadata__": {}, "a": {"data_offsets": [0, 9]}}'.ljust(72) + b"x" * 9


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.ckpt", PARTS), ("a.ckpt", LONG), ("a.ckpt", PARTS + b"crc_num" + b"1" * 10), ("a.safetensors", TENSORS)],
)
@pytest.mark.parametrize("others", ["none", "tainted", "damaged", "corrupt"])
def test_one_without_a_manifest_is_taken_where_nothing_better_is_there_and_it_is_whole(tmp_path, name, content, others):
    bare = tmp_path / name
    bare.write_bytes(content)
    if others != "none":
        save(tmp_path, 2, Health(tainted_from=1 if others == "tainted" else 0))
    if others == "damaged":
        (tmp_path / "step2-rank0.ckpt").write_text("damaged")
    elif others == "corrupt":
        manifest_path(tmp_path / "step2-rank0.ckpt").write_text("{")
    choice = last_good(tmp_path)
    assert (choice.path, choice.step, len(choice.skipped)) == (bare, -1, 0 if others == "none" else 1)
    for size in (0, 1, len(content) - 1):
        bare.write_bytes(content[:size])
        choice = last_good([tmp_path, tmp_path / "missing"])
        assert (choice.path, choice.step) == (None, 0)
        assert any(each.startswith(f"{bare} is skipped: ") for each in choice.skipped)
    known = save(tmp_path, 1)
    bare.write_bytes(content)
    assert last_good(tmp_path).path == known


def test_of_ranks_with_a_folder_each_those_without_manifests_count_that_all_have(tmp_path):
    for age, (rank, name) in enumerate((rank, name) for name in ("m-5.ckpt", "m-10.ckpt") for rank in (0, 1)):
        (tmp_path / f"{rank}").mkdir(exist_ok=True)
        (tmp_path / f"{rank}" / name).write_bytes(PARTS[: -1 if age == 3 else None])
        os.utime(tmp_path / f"{rank}" / name, (age, age))
    choice = last_good([tmp_path / "0", tmp_path / "1"], together=True)
    assert choice.path == tmp_path / "1" / "m-5.ckpt"


def test_ranks_that_write_a_checkpoint_each_resume_from_a_step_that_all_have(tmp_path):
    for rank, step in ((0, 2), (1, 2), (0, 4), (1, 4), (0, 6)):
        save(tmp_path / f"rank{rank}", step, rank=rank)
    choice = last_good(tmp_path, together=True)
    assert (choice.step, len(choice.skipped)) == (4, 1)
    save(tmp_path / "rank0", 4, run="job+2")
    assert last_good(tmp_path, only_step=4, rank=1).path == tmp_path / "rank1" / "step4-rank1.ckpt"
    (tmp_path / "rank1" / "step4-rank1.ckpt").write_text("damaged")
    assert last_good(tmp_path, together=True).step == 2


def test_a_rank_that_died_in_its_first_save_of_an_attempt_counts_among_those_that_save(tmp_path):
    for rank in (0, 1):
        save(tmp_path / f"rank{rank}", 2, rank=rank)
    save(tmp_path / "rank0", 4, run="job+2")
    assert last_good(tmp_path, together=True).step == 2
    assert last_good(tmp_path, together=True, ranks=1).step == 4  # a job of fewer ranks than before
    save(tmp_path / "rank0", 6, run="job+2")  # it goes on without the other, as after a restart with one rank
    assert last_good(tmp_path, together=True).step == 6


def test_manifests_and_rule_states_whose_checkpoint_was_deleted_go_too_and_nothing_that_is_not_theirs(tmp_path):
    kept = "xstep2-rank0.ckpt.asd-rank0.json", "step2-rank0.ckpt.asd-rank.json", "step2-rank0.ckpt.asd-rank2.json"
    for name in ("step2-rank0.ckpt.asd-rank0.json", "step2-rank0.ckpt.asd-rank12-Net2.json", *kept):
        tmp_path.joinpath(name).touch()
    old = save(tmp_path, 2)
    os.utime(tmp_path / kept[2], (2e9, 2e9))  # of a file of that name that is being written again
    old.unlink()
    new = save(tmp_path, 4)
    assert {each.name for each in tmp_path.iterdir()} == {*kept, new.name, manifest_path(new).name}


def test_folders_are_noted_once_and_found_again(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    for folder in (inner, tmp_path / "a", inner, tmp_path / "gone"):
        note_checkpoint_place(tmp_path, 0, folder)
    note_checkpoint_place(tmp_path, 1, tmp_path / "a")
    known = json.loads((tmp_path / "checkpoints-rank0.json").read_text())
    assert known == [str(each) for each in (inner, tmp_path / "a", tmp_path / "gone")]
    assert checkpoint_places(tmp_path) == [tmp_path / "a", inner]
    (tmp_path / "checkpoints-rank1.json").write_text("{")
    assert checkpoint_places(tmp_path) == [tmp_path / "a", inner]
