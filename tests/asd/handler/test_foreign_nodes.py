"""What a node says of a job is heeded for devices of others only where the job runs on both, or many nodes agree."""

import pytest

from tests.asd.handler.scene import Scene

JOBS = {"llama": ("node7", "node8", "node9")}
FOREIGN = {"host": "node0", "device": "Ascend:6"}
OUT = ["strike", "strike", "waiting", "isolated"]


@pytest.fixture
def scene():
    return Scene(hosts_of=lambda job: JOBS.get(job, ()))


@pytest.fixture(params=["known", "unknown"])
def any_scene(request):
    """One that knows the nodes of the job, and one that knows those of no job."""
    return Scene(hosts_of=lambda job: JOBS.get(job, ()) if request.param == "known" else ())


def three_strikes(scene, **changes):
    """What follows from three strikes of node7."""
    actions = [scene.raises(step, **changes) for step in (1, 2, 3)]
    return actions + [each.action for each in scene.handler.tick(scene.clock.now + 31.0) if each.device.host == "node7"]


@pytest.mark.parametrize("in_advance", [True, False])
def test_a_foreign_node_that_says_software_shields_nobody(any_scene, in_advance):
    def lie():
        for step in (1, 2, 3):
            any_scene.replay("software", step, **FOREIGN)

    if in_advance:
        lie()
    actions = [any_scene.raises(step) for step in (1, 2, 3)]
    if not in_advance:
        lie()
    assert [*actions, *any_scene.after(31.0)] == OUT


def test_made_up_devices_of_a_foreign_node_make_no_burst(any_scene):
    for step in (1, 2, 3):
        for device in ("Ascend:0", "Ascend:1"):
            any_scene.tell(step, device, host="node0")
    assert three_strikes(any_scene, wait=1.0) == OUT


def test_the_same_value_in_another_run_by_a_foreign_node_is_no_repetition(any_scene):
    for step in (1, 2, 3):
        any_scene.tell(step, run="llama+2", **FOREIGN)
    assert three_strikes(any_scene) == OUT


def test_the_same_value_by_a_node_of_the_job_is_software_on_both(scene):
    assert three_strikes(scene) == OUT
    assert scene.raises(1, run="llama+2", host="node8") == "software"
    assert (scene.after(1.0), scene.isolated, scene.record().strikes) == (["released"], [], 2)


@pytest.mark.parametrize("knows", [True, False])
def test_where_the_values_of_a_job_repeat_after_it_moved_the_node_it_was_on_is_given_back_too(knows):
    at = ["node7"]
    scene = Scene(hosts_of=(lambda _job: at) if knows else None)
    assert three_strikes(scene) == OUT
    scene.tell(1, "Ascend:5", host="node9", value=7e9)
    at[0] = "node8"  # where the job is now alone
    actions = [scene.raises(step, run="llama+2", host="node8") for step in (1, 2, 3)]
    assert actions == ["software"] * 3
    assert "released" in scene.after(1.0)
    assert scene.isolated == []
    others = scene.rows("SELECT revoked FROM strike JOIN device ON device.n = device WHERE host = 'node9'")
    assert others == [("",)]  # which had another value


def test_nodes_that_agree_on_a_job_that_nobody_knows_withhold_the_strikes_until_a_replay_proves_one():
    scene = Scene(hosts_of=lambda _job: ())
    actions = [scene.raises(1, host=host, wait=1.0) for host in ("node7", "node8", "node9")]
    assert actions == ["strike", "strike", "software"]
    assert [row[0] for row in scene.rows("SELECT revoked FROM strike")] == ["withheld"] * 3
    scene.replay("transient", 1)
    assert [row[0] for row in scene.rows("SELECT revoked FROM strike")] == ["", "withheld", "withheld"]


def test_a_node_of_the_job_that_says_software_clears_its_own_devices_alone(scene):
    scene.tell(1)
    scene.tell(1, host="node8")
    assert scene.replay("software", 1, host="node8").action == "software"
    revoked = scene.rows("SELECT host, revoked FROM strike JOIN device ON device.n = device")
    assert revoked == [("node7", ""), ("node8", "software")]


def test_a_burst_over_the_nodes_of_a_job_is_one_and_that_of_a_node_where_nobody_knows_the_jobs(scene):
    burst = ["strike", "strike", "software"]
    assert [scene.raises(1, host=host, wait=1.0) for host in ("node7", "node8", "node9")] == burst
    unknown = Scene(hosts_of=lambda _job: ())
    assert [unknown.raises(1, f"Ascend:{number}", wait=1.0) for number in range(3)] == burst
