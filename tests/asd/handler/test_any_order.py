"""Whatever events come, in whatever order."""

import math
from types import SimpleNamespace

from hypothesis import example, given
from hypothesis import strategies as st

from asd import Level
from asd.handler import Policy
from tests.asd.handler.scene import START, Scene, event

DEVICES = [f"Ascend:{number}" for number in range(6)]
VERDICTS = ("persistent", "transient", "software", "undetermined")
KINDS = [{}, {}, {}, {"level": Level.WARNING}, {"kind": "follower"}]
KINDS += [{"kind": "replay", "verdict": verdict} for verdict in VERDICTS]
ANY_EVENT = st.builds(
    lambda device, step, kind, late, **more: event(
        step, device=device, rank=int(device[-1]), time=START + late, **kind, **more
    ),
    st.sampled_from(DEVICES),
    st.integers(0, 4),
    st.sampled_from(KINDS),
    st.floats(-100, 1000),
    run=st.sampled_from(["job", "job+2", "other"]),
    checkpoint=st.sampled_from("ab"),
    value=st.sampled_from([1e7, math.inf]),
)

LATE = [{"step": 1}, {"step": 2}, *({"level": Level.WARNING, "step": step} for step in (3, 4, 5))]
GIVEN_BACK = [event(**each, time=START) for each in LATE] + [event(1, f"Ascend:{n}", time=START) for n in (1, 2)]


IN_ORDER = SimpleNamespace(shuffle=lambda _: None, random=lambda: 1.0)


@given(st.lists(ANY_EVENT, max_size=40), st.randoms(use_true_random=False), st.integers(0, 3), st.booleans())
@example(GIVEN_BACK, IN_ORDER, 3, True)  # isolated before the others of its burst were heard, and then given back
def test_no_order_and_no_repetition_isolates_more_devices_than_the_breaker_allows(events, random, most, ticks):
    scene = Scene(Policy(strikes=2, max_devices=most))
    delivered = events + events
    random.shuffle(delivered)
    for each in delivered:
        scene.clock.now += random.random() * 20
        scene.handler.handle(each)
        if ticks:
            scene.handler.tick()
    scene.after(61.0)
    assert len({call[1] for call in scene.engine.calls if call[0] == "isolate"}) <= most
    assert len(scene.published) == len({told.id for told in scene.published}) == len(scene.engine.calls)


@given(st.lists(ANY_EVENT, max_size=25, unique_by=lambda each: each.id), st.integers(1, 7))
def test_events_in_batches_lead_to_what_they_lead_to_one_by_one(events, size):
    isolated = []
    for batch in (1, size):
        scene = Scene(Policy(strikes=2, max_devices=1000, max_percent=100))
        for place in range(0, len(events), batch):
            scene.handler.handle_many(events[place : place + batch])
        scene.after(61.0)
        isolated.append(scene.isolated)
    assert isolated[0] == isolated[1]
