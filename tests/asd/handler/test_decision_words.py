"""Every decision in words."""

import pytest

from asd.handler import Policy
from asd.isolator import Device
from tests.asd.handler.scene import START, Scene, event


def said(decision):
    return decision.action, decision.reason


WHO = "Ascend:3 on node7: "


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"kind": "recovery"}, "it is no reason to do anything"),
        ({"time": START - 1e6}, "it is too old to be a reason to act, it is only recorded"),
        (
            {"kind": "replay", "verdict": "persistent", "time": START - 1e6},
            "its verdict persistent is too old to be a reason to act",
        ),
    ],
)
def test_what_one_event_leads_to_in_words(changes, sentence):
    scene = Scene()
    decision = scene.handler.handle(event(**changes))
    assert decision.reason == f"{WHO}{sentence}."
    assert (decision.device, decision.case) == (Device("node7", "Ascend:3", 3), 0)
    assert said(scene.handler.handle(event(**changes))) == ("duplicate", f"{WHO}the event was taken in before.")


@pytest.mark.parametrize("kind", [{}, {"kind": "replay", "verdict": "persistent"}, {"kind": "stress"}])
@pytest.mark.parametrize("nobody", [{"device": "unknown"}, {"device": ""}, {"host": ""}])
def test_what_names_no_device_is_told_by_the_id_of_the_event(kind, nobody):
    nameless = event(**nobody, **kind)
    decision = Scene(Policy(strikes=1, settle_seconds=0)).handler.handle(nameless)
    assert said(decision) == ("noted", f"event {nameless.id}: it is no reason to do anything.")
    assert (decision.device, decision.event_id) == (None, nameless.id)


def test_what_follows_from_strikes_in_words():
    scene = Scene()
    scene.raises(1)
    scene.raises(1, checkpoint="b")
    scene.raises(2)
    scene.clock.now += 100.0
    assert said(scene.tell(3)) == (
        "waiting",
        f"{WHO}it has 3 strikes of 3, and is isolated unless many devices of job llama raise within 30 s.",
    )
    scene.after(31.0)
    merged = scene.tell(4)
    assert (merged.action, merged.case) == ("merged", 1)
