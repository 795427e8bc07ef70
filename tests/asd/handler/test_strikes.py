"""What one event does to the strikes of the store, exactly: rows, counts and who is told of what."""

import pytest

from asd.handler import Policy, Store
from asd.handler.decide import strikes
from asd.handler.decide.strikes import Counted, Strikes
from tests.asd.handler.scene import START, event


class Book:
    """A strike book over a store in memory, whose clock goes by hand."""

    def __init__(self, **policy):
        self.policy = Policy(**policy)
        self.store = Store(None)
        self.strikes = Strikes(self.store, self.policy)
        self.now = START

    def count(self, step, device, at=0.0, **changes):
        """An event about a device, so many seconds after the start."""
        return self.strikes.count(event(step, device=device, time=START + at, **changes), self.now)

    def rows(self, columns, table="strike"):
        return self.store.db.execute(f"SELECT {columns} FROM {table} ORDER BY n").fetchall()

    def revoked(self):
        return [row[0] for row in self.rows("revoked")]

    def number(self, device):
        return self.strikes.device("node7", device, int(device[-1]), self.now)


@pytest.fixture
def book():
    return Book()


def test_numbers_of_devices_are_kept_until_there_are_too_many(book, monkeypatch):
    monkeypatch.setattr(strikes, "_MOST_CACHED", 2)
    kept = []
    for number in (1, 2, 3):
        assert book.number(f"Ascend:{number}") == number
        kept.append(len(book.strikes._numbers))
    assert kept == [1, 2, 1]
    assert [book.number(f"Ascend:{number}") for number in (1, 2, 3)] == [1, 2, 3]


def test_of_a_device_fifty_strikes_more_than_needed_are_kept(book):
    for step in range(1, 151):
        book.count(step, "Ascend:1", at=step - 150)
    assert [row[0] for row in book.rows("step")] == list(range(98, 151))


@pytest.mark.parametrize(("ago", "wait"), [(0, 30), (60, 30), (89, 30), (90, 0), (500, 0)])
def test_a_strike_waits_unless_those_of_the_other_ranks_must_be_there(book, ago, wait):
    book.count(1, "Ascend:1", at=-ago)
    assert book.rows("due - received, settled") == [(wait, 0)]


def test_software_that_no_device_is_named_for_revokes_the_strikes_of_its_step(book):
    book.count(4, "Ascend:1")
    book.count(4, "Ascend:2")
    found = book.count(4, "", kind="replay", verdict="software")
    assert found == Counted(device=0, new=False, revoked=2)
    assert book.revoked() == ["software", "software"]


def test_software_in_a_step_that_is_not_known_revokes_only_itself(book):
    book.count(0, "Ascend:1")
    found = book.count(0, "Ascend:2", kind="replay", verdict="software")
    assert found == Counted(device=2, new=True, revoked=0)
    assert book.revoked() == ["", "software"]
    assert book.rows("step") == [(-1,), (-1,)]
    assert book.store.db.execute("SELECT count(*) FROM software").fetchone() == (0,)


def test_failed_stress_tests_make_no_burst_of_anomalies(book):
    book.count(1, "Ascend:1")
    book.count(2, "Ascend:2")
    found = book.count(0, "Ascend:3", kind="stress", key="a", checkpoint="")
    assert found == Counted(3, True)
    assert book.revoked() == [""] * 3
    assert book.count(3, "Ascend:4", at=1).burst == 4


def test_more_than_many_devices_are_counted_if_nobody_was_told_of_the_first(book):
    for number in (1, 2, 3):
        book.count(5, f"Ascend:{number}", kind="stress", key="")
    found = book.count(6, "Ascend:4")
    assert (found.burst, found.first) == (4, True)


def test_a_burst_takes_in_no_strike_that_is_later_than_its_time(book):
    book.now = START + 200
    for step, at in enumerate((0.0, 200.0, 1.0, 2.0), 1):
        last = book.count(step, f"Ascend:{step}", at=at)
    assert (last.burst, last.first) == (3, True)
    assert book.revoked() == ["burst", "", "burst", "burst"]


@pytest.mark.parametrize(
    ("before", "after", "burst"), [(-20.0, 20.0, 0), (-20.0, 10.0, 3), (-20.0, 10.5, 0), (-15.0, 5.0, 3)]
)
def test_a_burst_may_begin_before_and_end_after_the_event_that_shows_it(book, before, after, burst):
    book.now = START + 100
    book.count(4, "Ascend:4", at=70.0)
    book.count(1, "Ascend:1", at=before)
    book.count(2, "Ascend:2", at=after)
    found = book.count(3, "Ascend:3", at=0.0)
    assert (found.burst, found.first) == (burst, burst > 0)
    assert book.revoked() == ["", *["burst" if burst else ""] * 3]
