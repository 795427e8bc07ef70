"""How a device gets back to work: by hand, or after a time without a fault and a stress test that it passed."""

from __future__ import annotations

from asd.errors import ConfigError
from asd.handler.db.isolations import BY_HAND, NO_FAULT, TEST_WANTED, Isolation, Isolations
from asd.handler.db.store import Store
from asd.handler.decide.triage import Triage
from asd.handler.decision import Decision
from asd.handler.policy import Policy

__all__ = [
    "ask_release",
    "clear_device",
    "drop_verdict",
    "due_releases",
    "find_device",
    "request_release",
    "request_test",
]


def due_releases(cases: Isolations, policy: Policy, engine: str, now: float) -> tuple[list[Isolation], list[Isolation]]:
    """The cases of `engine` without a new fault for long enough.

    Returns:
        Those to be given back, and those whose device has to pass a stress test before and was not asked to yet: a
        device that is out computes nothing for anybody, so that its silence alone says little.
    """
    if not policy.release_after_seconds:
        return [], []
    states = ("dry",) if policy.dry_run else ("isolated",)
    quiet = [
        case
        for case in cases.in_state(*states)
        if case.isolator == engine and now >= case.next_try and now - case.last_fault >= policy.release_after_seconds
    ]
    sound = [case for case in quiet if policy.forgets or cases.passed_a_test(case)]
    return sound, [case for case in quiet if case not in sound and not case.reason.endswith(TEST_WANTED)]


def request_test(judge: Triage, case: Isolation, now: float) -> Decision:
    """Writes down that a device has to pass a stress test to be given back. Used within a transaction."""
    judge.cases.change(case.n, reason=case.reason + TEST_WANTED)
    device = judge.book.named(case.device)
    hours = (now - case.last_fault) / 3600
    reason = f"{device}: {NO_FAULT} {hours:g} h; it is given back after a stress test that it passes (`asd stress`)."
    return Decision(action="test-wanted", reason=reason, time=now, device=device, case=case.n)


def request_release(judge: Triage, policy: Policy, case: Isolation, now: float) -> Decision:
    """Writes down that a device is to be given back after its time without a fault. Used within a transaction."""
    why = f"{NO_FAULT} {(now - case.last_fault) / 3600:g} h"
    device = judge.book.named(case.device)
    if case.state == "dry":
        judge.cases.change(case.n, state="released", closed=now, why_released=why)
        if policy.forgets:
            judge.book.clear(case.device, now)
        action, reason = "released", f"{device}: {why}, so it would be released, were this no dry run."
    else:
        judge.cases.change(case.n, state="releasing", why_released=why, attempts=0, next_try=0.0)
        action, reason = "releasing", f"{device}: {why}, so it is to be released."
    return Decision(action=action, reason=reason, time=now, device=device, case=case.n)


def find_device(store: Store, host: str, device: str, rank: int | None = None) -> int:
    """The number of a device.

    Args:
        store: What is known.
        host: Its machine.
        device: Its name, for example `Ascend:3`.
        rank: Which, where several ranks share a device.

    Raises:
        ConfigError: There is no such device, or there are several.
    """
    wanted = None if rank is None else store.device_key(host, device, rank)[2]
    rows = store.db.execute(
        "SELECT n, shared_rank FROM device WHERE host = ? AND name = ? ORDER BY shared_rank", (host, device)
    ).fetchall()
    found = [row for row in rows if wanted is None or row[1] == wanted]
    if not found:
        known = store.db.execute("SELECT host || ' ' || name FROM device ORDER BY last DESC LIMIT 3").fetchall()
        listed = ", ".join(sorted({str(row[0]) for row in known})) or "none is known yet"
        raise ConfigError("HOST DEVICE", f"{host} {device}", f"it must be a known device, such as {listed}")
    if len(found) > 1:
        ranks = ", ".join(str(row[1]) for row in found)
        raise ConfigError("--rank", "", f"several ranks share {device} on {host}: it must be one of {ranks}")
    return int(found[0][0])


def ask_release(store: Store, number: int, now: float) -> str:
    """Writes down that somebody wants a device back; the handler does it.

    Returns:
        The state of its case before: `isolated`, `isolating`, `dry`, or empty when it was not out.

    Raises:
        StateError: The store can't be written.
    """
    cases = Isolations(store)
    with store.transaction():
        case = cases.open_case(number)
        if case is None:
            return ""
        if case.state == "dry":
            cases.change(case.n, state="released", closed=now, why_released=BY_HAND)
            store.db.execute("UPDATE device SET cleared = ? WHERE n = ?", (now, number))
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
    cases = Isolations(store)
    with store.transaction():
        case = cases.open_case(number)
        if case is None or case.state not in ("isolating", "releasing") or cases.was_told(case):
            return False
        cases.change(case.n, state="dropped", closed=now, why_released="its verdict was dropped by hand")
        store.db.execute("UPDATE device SET cleared = ? WHERE n = ?", (now, number))
        return True


def clear_device(store: Store, number: int, now: float) -> None:
    """Lets nothing that happened up to `now` count against a device, because it was tested or repaired.

    Raises:
        StateError: The store can't be written.
    """
    with store.transaction():
        store.db.execute("UPDATE device SET cleared = ? WHERE n = ?", (now, number))
        store.db.execute("UPDATE strike SET settled = 1 WHERE device = ? AND settled = 0", (number,))
        store.db.execute(
            "UPDATE device SET transient = 0, persistent = 0, software = 0, undetermined = 0, anomalies = 0, "
            "evidence = '' WHERE n = ?",
            (number,),
        )
