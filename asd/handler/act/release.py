"""What people do about a device: give it back, drop its verdict, note its repair."""

from __future__ import annotations

from asd.errors import ConfigError
from asd.handler.db.cases import BY_HAND, TEST_WANTED, Cases
from asd.handler.db.store import Store
from asd.handler.decide.strikes import Strikes
from asd.handler.policy import Policy


def find_device(store: Store, host: str, device: str) -> int:
    """The number of a device.

    Args:
        store: What is known.
        host: Its machine.
        device: Its name, for example `Ascend:3`.

    Raises:
        ConfigError: There is no such device.
    """
    found = store.db.execute(  # the last that was there: what was there before was replaced
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

    Returns:
        The state of its case before: `isolated`, `isolating`, `dry`, or empty when it was not out.

    Raises:
        StateError: The store can't be written.
    """
    cases = Cases(store)
    with store.transaction():
        case = cases.open_case(number)
        if case is None:
            return ""
        if case.state == "dry":
            cases.change(case.n, state="dropped", closed=now, why_released=BY_HAND)
            Strikes(store, Policy()).clear(number, now)
            return case.state
        # An isolation that was not done yet may have been begun, so the engine is asked in any case.
        cases.change(case.n, state="releasing", why_released=BY_HAND, attempts=0, next_try=0.0)
        return case.state


def drop_verdict(store: Store, number: int, now: float) -> bool:
    """Ends the tries to take a device out, without asking the engine; what was up to now counts against it no more.

    Returns:
        Whether there was something to drop: what the engine has done already is released, not dropped.

    Raises:
        StateError: The store can't be written.
    """
    cases = Cases(store)
    with store.transaction():
        case = cases.open_case(number)
        if case is None or case.state not in ("isolating", "others", "releasing") or cases.was_told(case):
            return False
        cases.change(case.n, state="dropped", closed=now, why_released="its verdict was dropped by hand")
        Strikes(store, Policy()).clear(number, now)
        return True


def note_repair(store: Store, number: int, serial: str, now: float) -> bool:
    """Lets nothing up to `now` count against what is in the place of a device; what is out wants a stress test.

    Args:
        store: What is known.
        number: The device that was there.
        serial: Of what is there now; empty when it is the same. What was there keeps its strikes.
        now: Seconds since the epoch.

    Returns:
        Whether it is out, so that it is given back after a stress test that it passes.

    Raises:
        StateError: The store can't be written.
    """
    cases, db = Cases(store), store.db
    with store.transaction():
        before = db.execute("SELECT serial FROM device WHERE n = ?", (number,)).fetchone()[0]
        there = number
        if serial and serial != before:
            # A row of its own, even where what was there had no serial: another device begins anew.
            there = db.execute(
                "INSERT INTO device (host, name, rank, serial, last) "
                "SELECT host, name, rank, ?, ? FROM device WHERE n = ? "
                "ON CONFLICT DO UPDATE SET last = excluded.last RETURNING n",
                (serial, now, number),
            ).fetchone()[0]
        Strikes(store, Policy()).clear(there, now)
        counts = "transient = 0, persistent = 0, software = 0, undetermined = 0"
        db.execute(f"UPDATE device SET {counts}, evidence = '' WHERE n = ?", (there,))
        case = cases.open_case(number)
        if case is None:
            return False
        what = f"it was replaced by {serial}" if there != number else "it was repaired"
        reason = f"{case.reason.removesuffix(TEST_WANTED)}; {what}{TEST_WANTED}"
        cases.change(case.n, device=there, reason=reason, last_fault=now)
        return True
