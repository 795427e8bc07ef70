"""An engine that is a set, and a handler with everything around it, for the tests of its rules."""

from asd import Level
from asd.errors import IsolationError
from asd.handler import FaultHandler, Policy, Store
from asd.handler.decide.breaker import reset_breaker
from asd.handler.device_record import device_records
from asd.isolator import Device, IsolationOwner
from tests.support.events import event_maker, growing

START = 1_700_000_000.0
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
made = event_maker(run="llama", value=growing, time=START, evidence=lambda step: f"evidence/{step}")


class Clock:
    def __init__(self, now=START):
        self.now = now

    def __call__(self):
        return self.now


class Engine:
    """An engine in memory; `others` are held out by somebody else."""

    name = "set"

    def __init__(self):
        self.ours, self.others, self.calls, self.failures = set(), set(), [], []

    def held(self, device):
        if device[:2] in self.others:
            return IsolationOwner.OTHERS
        return IsolationOwner.OURS if device[:2] in self.ours else IsolationOwner.FREE

    def isolate(self, device, reason, event_id):
        self.calls.append(("isolate", device, reason, event_id))
        if self.failures:
            raise self.failures.pop(0)
        self.ours.add(device[:2])

    def release(self, device):
        self.calls.append(("release", device))
        if self.failures:
            raise self.failures.pop(0)
        self.ours.discard(device[:2])


class Nodes(Engine):
    """An engine that knows when each host was made, and is told so."""

    def __init__(self, **made):
        super().__init__()
        self.made, self.refuses = made, False

    def held(self, device):
        if device.host not in self.made:
            raise failure(f"there is no node {device.host}", retry=False)
        if self.refuses:
            raise failure("answered 503")
        return super().held(device)

    def host_since(self, device):
        if self.refuses:
            raise failure("answered 503")
        return self.made.get(device.host)


class Scene:
    """A handler with everything around it."""

    def __init__(self, policy=None, path=None, *, whole_nodes=False, **more):
        self.clock, self.engine, self.published = Clock(), Engine(), []
        self.engine.whole_nodes = whole_nodes
        self.policy, self.path, self.more = policy or Policy(), path, more
        self.begin()

    def begin(self):
        self.handler = FaultHandler(
            Store(self.path), self.policy, self.engine, self.published.append, self.clock, **self.more
        )

    def restart(self, policy=None):
        self.handler.close()
        self.policy = policy or self.policy
        self.begin()

    def reset_breaker(self):
        """As a person does it; returns whether it was open."""
        with self.handler.store.transaction():
            return reset_breaker(self.handler.store, self.clock.now)

    def tell(self, step=1, device="Ascend:3", wait=0.0, **changes):
        """A first-level anomaly, `wait` seconds after what was before; returns the decision about it."""
        self.clock.now += wait
        return self.handler.handle(event(step, device=device, **{"time": self.clock.now, **changes}))

    def raises(self, step, device="Ascend:3", wait=100.0, **changes):
        """The same some time later; returns what is done about it."""
        return self.tell(step, device, wait, **changes).action

    def replay(self, verdict, step=1, device="Ascend:3", **changes):
        return self.tell(step, device, kind="replay", verdict=verdict, **changes)

    def stress(self, *, failed, device="Ascend:3", **changes):
        """A stress test that ends now; returns the decision about it."""
        level = Level.ERROR if failed else Level.NORMAL
        fields = {"kind": "stress", "level": level, "key": str(self.clock.now), "checkpoint": ""}
        return self.tell(0, device, **{**fields, **changes})

    def passes(self, *devices):
        """A stress test that each device passes, a second later."""
        self.clock.now += 1.0
        for device in devices:
            assert self.stress(failed=False, device=device).action == "passed"

    def after(self, seconds):
        self.clock.now += seconds
        return [decision.action for decision in self.handler.tick()]

    def record(self, device="Ascend:3"):
        """What is known of a device."""
        found = device_records(self.handler.store, self.policy, self.clock.now)
        return next(each for each in found if each.device == device)

    def rows(self, query):
        """What the store has."""
        return self.handler.store.db.execute(query).fetchall()

    @property
    def isolated(self):
        return sorted(device for _, device in self.engine.ours)


def event(step=1, device="Ascend:3", **changes):
    rank = int(device[-1]) if device[-1:].isdecimal() else 0  # the id of an event tells ranks apart
    return made(step, **{"device": device, "rank": rank, **changes})


def breaker_scene(devices=2, **policy):
    scene = Scene(Policy(**policy))
    scene.handler.know([Device("node7", "Ascend:0", 0)])  # the only node
    for number in range(devices):
        assert scene.replay("persistent", number + 1, device=f"Ascend:{number}").action == "isolated"
    return scene


def failure(reason="no answer", **more):
    return IsolationError(Device("node7", "Ascend:3", 3), "set", reason, **more)
