"""Actions of people on a device: release it, drop its verdict, note its repair."""

from asd.errors import ConfigError
from asd.handler.db.cases import Cases
from asd.handler.db.store import Store
from asd.handler.decide.hardware import KnownDevices


def find_device(store: Store, host: str, device: str) -> int:
    """Returns the number of a device that has a name such as `Ascend:3`."""
    found = store.db.execute(  # the last one in that place: earlier ones were replaced
        "SELECT n FROM device WHERE host = ? AND name = ? "
        "ORDER BY n IN (SELECT device FROM cases WHERE closed IS NULL) DESC, last DESC, n DESC LIMIT 1",
        (host, device),
    ).fetchone()
    if found is None:
        known = store.db.execute("SELECT host || ' ' || name FROM device ORDER BY last DESC LIMIT 3").fetchall()
        listed = ", ".join(sorted({str(row[0]) for row in known})) or "none is known yet"
        raise ConfigError("HOST DEVICE", f"{host} {device}", f"it must be a known device, such as {listed}")
    return int(found[0])


def ask_release(store: Store, number: int, now: float) -> str:
    """Writes down that somebody wants a device back; the handler does it.

    Returns the state of its case before: `isolated`, `isolating`, `dry`, or empty when it was not out.
    """
    cases = Cases(store)
    with store.transaction():
        case = cases.open_case(number)
        if case is None:
            return ""
        # An isolation that is not done may have begun, so the scheduler is asked in any case.
        by_hand = {"ending": "person", "why_released": "it was released by hand", "attempts": 0, "next_try": 0.0}
        cases.move(case.n, "release", now, **by_hand)
        if case.state == "dry":
            KnownDevices(store).clear(number, now)
        return case.state


def drop_verdict(store: Store, number: int, now: float) -> bool:
    """Ends the tries to isolate or release a device, without asking the scheduler; faults up to now no longer count.

    Returns whether there was something to drop: an isolation that was carried out is released, not dropped.
    """
    cases = Cases(store)
    with store.transaction():
        case = cases.open_case(number)
        if case is None or case.state not in ("isolating", "others", "releasing"):
            return False
        case = cases.move(case.n, "drop", now, ending="person", why_released="its verdict was dropped by hand")
        if cases.was_told(case):
            cases.tell(case, "recovery", f"{case.named}: {case.why_released}; the scheduler was not asked.", now)
        KnownDevices(store).clear(number, now)
        return True


def note_repair(store: Store, number: int, serial: str, now: float) -> bool:
    """Deletes strikes and verdicts up to `now` of the hardware of a device; if it is isolated, asks for a stress test.

    With a serial the device was replaced, and the old one keeps its strikes. Returns whether it is isolated: then it is
    released after it passes a stress test.
    """
    cases, db = Cases(store), store.db
    with store.transaction():
        before = db.execute("SELECT serial FROM device WHERE n = ?", (number,)).fetchone()[0]
        there = number
        if serial and serial != before:
            # A row of its own, even where the old device had no serial: a different device starts without history.
            there = db.execute(
                "INSERT INTO device (host, name, rank, serial, last) "
                "SELECT host, name, rank, ?, ? FROM device WHERE n = ? "
                "ON CONFLICT DO UPDATE SET last = excluded.last RETURNING n",
                (serial, now, number),
            ).fetchone()[0]
        KnownDevices(store).clear(there, now)
        counts = "transient = 0, persistent = 0, software = 0, undetermined = 0"
        db.execute(f"UPDATE device SET {counts}, evidence = '' WHERE n = ?", (there,))
        case = cases.open_case(number)
        if case is None:
            return False
        what = f"it was replaced by {serial}" if there != number else "it was repaired"
        cases.change(case.n, device=there, reason=f"{case.reason}; {what}", wants_test=True, last_fault=now)
        return True
