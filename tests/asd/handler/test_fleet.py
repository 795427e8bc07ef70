"""Faults and device-days of a fleet, by hardware: which group stands out."""

import random

import pytest

from asd.exporters.report.fleet import groups
from asd.handler.act.release import ask_release, find_device
from asd.handler.db.fleet import Fleet, Used
from asd.handler.device_record import device_records
from asd.origin import Hardware
from tests.asd.handler.scene import DAY, Scene

stats = pytest.importorskip("scipy.stats")  # which MindSpore brings with it
HEALTHY, BAD = Hardware("910B3", "7.1", "23.0"), Hardware("910B3", "7.2", "23.0")
DEVICES = range(8)


class Cluster(Scene):
    """Nodes with eight devices each; every tenth has the firmware of `BAD`."""

    def __init__(self, nodes):
        super().__init__()
        self.parts = {f"n{number}": HEALTHY if number % 10 else BAD for number in range(nodes)}
        self.handler.know_nodes("agents", set(self.parts))

    def train(self, days):
        self.clock.now += days * DAY
        rows = {
            host: [Used(host, f"Ascend:{number}", f"{host}-{number}", parts) for number in DEVICES]
            for host, parts in self.parts.items()
        }
        self.handler.know_fleet(rows, days)

    def fails(self, host, number, **more):
        parts = {"serial": f"{host}-{number}", "hardware": self.parts[host]}
        where = {"host": host, "device": f"Ascend:{number}", "run": f"{host}-{number}-{self.clock.now}"}
        return self.replay("persistent", **{**where, **parts, **more})

    def by(self, *names):
        fleet = Fleet(self.handler.store)
        return {group.names: group for group in groups(fleet.used(), fleet.faults(), *names)}


@pytest.mark.parametrize(("factor", "found"), [(6.0, [("7.2",)]), (1.0, [])])
def test_after_a_year_the_bad_firmware_stands_out_and_no_node_does(factor, found):
    cluster, luck = Cluster(60), random.Random(7)
    for _ in range(24):
        cluster.train(15.0)
        for host, parts in cluster.parts.items():
            for number in DEVICES:
                if luck.random() < 0.003 * (factor if parts is BAD else 1.0):
                    cluster.fails(host, number)
    firmware = cluster.by("firmware")
    assert [names for names, group in firmware.items() if group.stands_out] == found
    assert not any(group.stands_out for group in cluster.by("node").values())
    total = sum(group.faults for group in firmware.values())
    for names, group in firmware.items():
        assert group.device_days == pytest.approx(360.0 * group.devices)
        assert group.low < 1000 * group.faults / group.device_days < group.high
        ends = [stats.chi2.ppf(0.025, 2 * group.faults) / 2, stats.chi2.ppf(0.975, 2 * group.faults + 2) / 2]
        assert [group.low, group.high] == pytest.approx([1000 * each / group.device_days for each in ends], rel=0.02)
        tail, bad = stats.binom.sf(group.faults - 1, total, group.devices / (8 * 60)), firmware["7.2",].chance
        assert group.chance == pytest.approx(min(1.0, 2 * tail) if names == ("7.2",) else max(tail, bad))


def test_a_bad_board_is_one_fault_and_software_and_what_a_person_releases_is_none():
    cluster = Cluster(40)
    cluster.train(30.0)
    for number in DEVICES:
        cluster.fails("n3", number)
    assert cluster.by("node")["n3",].faults == 1
    cluster.train(2.0)
    cluster.fails("n5", 1)
    store = cluster.handler.store
    ask_release(store, find_device(store, "n5", "Ascend:1"), cluster.clock.now)
    cluster.after(1.0)
    cluster.train(200.0)  # what happened is not forgotten
    cluster.after(DAY)
    assert not any(
        each.reason for each in device_records(store, cluster.policy, cluster.clock.now) if each.host == "n5"
    )
    assert {names: group.faults for names, group in cluster.by("node").items() if group.faults} == {("n3",): 1}
    (best, *_) = cluster.by("model", "firmware").values()
    assert (best.names, best.faults, best.stands_out) == (("910B3", "7.1"), 1, False)


def test_an_event_without_hardware_counts_as_what_its_device_is_now_and_faults_before_the_first_day_not_at_all():
    cluster = Cluster(10)
    cluster.fails("n0", 1)
    cluster.train(1.0)
    cluster.fails("n0", 2, hardware=Hardware())
    assert {names: group.faults for names, group in cluster.by("firmware").items()} == {("7.2",): 1, ("7.1",): 0}
