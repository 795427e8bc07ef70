"""The one place that holds the form of decisions in words; other tests hold actions."""

import re

import pytest

from asd.handler import Policy
from tests.asd.handler.scene import HOUR, START, Scene, event


def test_every_decision_names_its_device_and_is_one_sentence():
    scene, told = Scene(Policy(max_devices=2)), []
    scene.handler.know_nodes("agents", ["node7"])  # the only one, so that the breaker opens
    for kind in ({}, {"kind": "recovery"}, {"step": 8, "time": START - 1e6}, {"kind": "replay", "verdict": "software"}):
        told += [scene.handler.handle(event(**{"step": 9, **kind})) for _ in range(2)]
    told += [scene.tell(step, f"Ascend:{number}", wait=100.0) for number in (3, 4) for step in (1, 2, 3)]
    told += scene.handler.tick(scene.clock.now + 31.0)
    told += [scene.replay("persistent", 4, f"Ascend:{number}") for number in (3, 5)]
    told += [scene.tell(7, f"Ascend:{number}", wait=1.0) for number in (5, 6, 7)]
    told += [scene.stress(failed=failed) for failed in (False, True)] + scene.handler.tick(scene.clock.now + 60 * HOUR)
    words = "breaker duplicate isolated merged noted passed problem released software stale strike test-wanted waiting"
    assert {each.action for each in told} == set(words.split())
    forms = {each.action for each in told if not re.fullmatch(r"Ascend:\d on node7: [^\n]+\.", each.reason)}
    assert forms == {"problem"}


@pytest.mark.parametrize("kind", [{}, {"kind": "replay", "verdict": "persistent"}, {"kind": "stress"}])
@pytest.mark.parametrize("nobody", [{"device": "unknown"}, {"device": ""}, {"host": ""}])
def test_what_names_no_device_is_told_by_the_id_of_the_event(kind, nobody):
    nameless = event(**nobody, **kind)
    decision = Scene(Policy(strikes=1, settle_seconds=0)).handler.handle(nameless)
    assert (decision.action, decision.reason.partition(":")[0]) == ("noted", f"event {nameless.id}")
    assert (decision.device, decision.event_id) == (None, nameless.id)
