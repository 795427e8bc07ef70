"""Hardware of events: devices by number, identified by their serial, else by host and name."""

from asd.event import Event
from asd.handler.db.store import Store
from asd.handler.model.identity import moment

JUDGED = ("replay", "stress")  # kinds of events that bring a verdict about a device
_MOST_OF_HOST = 1024  # devices of one host
# An event may come again when its id is forgotten: an agent that has lost its journal reads the logs from the start.
_TOLD_BEFORE = """EXISTS (
SELECT 1 FROM strike WHERE device = :device AND run = :run AND (step = :step OR step < 0 AND time = :time)
AND :verdict IN (verdict, CASE WHEN unclear THEN 'undetermined' END))"""


class KnownDevices:
    """The devices that the store knows. Used within a transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def number(self, host: str, device: str, rank: int, now: float, serial: str = "") -> int:
        """Returns the number of a device, a new one if needed; without a serial, that of the last one in this place.

        A device that was known by its place alone gets its serial.
        """
        where, values = "name = ? ORDER BY last DESC, n DESC", [host, device]
        if serial:
            where = "(serial = ? OR name = ? AND serial = '') ORDER BY serial DESC, name = ? DESC"
            values = [host, serial, device, device]
        row = self._store.db.execute(
            f"SELECT n, name, serial FROM device WHERE host = ? AND {where} LIMIT 1", values
        ).fetchone()
        if row is None:
            return self._new((host, device, serial), rank, now)
        if serial and row[1:] != (device, serial):
            self._store.db.execute("UPDATE device SET name = ?, serial = ? WHERE n = ?", (device, serial, row[0]))
        return int(row[0])

    def clear(self, device: int, until: float) -> None:
        """Lets no strike of `device` up to `until` count any more, also where the clock of its node is ahead."""
        latest = "SELECT max(time) FROM strike WHERE device = :device AND received <= :until"
        query = f"UPDATE device SET cleared = max(cleared, :until, ifnull(({latest}), 0)) WHERE n = :device"
        self._store.db.execute(query, {"device": device, "until": until})

    def heard_of(self, event: Event, now: float) -> tuple[int, float]:
        """Records an event's verdict, evidence and time for its device; returns its number and when it was cleared."""
        device = self.number(event.host, event.device, event.rank, now, event.serial)
        verdict = event.verdict if event.kind in JUDGED else ""
        more = f", {verdict} = {verdict} + NOT {_TOLD_BEFORE}" if verdict else ""
        if event.kind == "stress":
            more += ", tested = max(tested, :time), sound = CASE WHEN tested <= :time THEN :sound ELSE sound END"
        values = {name: getattr(event, name) for name in ("rank", "evidence", "time", "run", "verdict")}
        row = self._store.db.execute(
            "UPDATE device SET last = :now, rank = CASE WHEN :rank < 0 THEN rank ELSE :rank END, "
            f"evidence = CASE :evidence WHEN '' THEN evidence ELSE :evidence END{more} WHERE n = :device "
            "RETURNING cleared",
            {**values, "now": now, "sound": not event.verdict, "device": device, "step": moment(event)},
        ).fetchone()
        return device, float(row[0])

    def _new(self, key: tuple[str, str, str], rank: int, now: float) -> int:
        """Keeps a new device; of too many of one host the one that was not heard of for longest is forgotten."""
        db, host = self._store.db, key[0]
        if db.execute("SELECT count(*) FROM device WHERE host = ?", (host,)).fetchone()[0] >= _MOST_OF_HOST:
            oldest = "SELECT n FROM device WHERE host = ? AND n NOT IN (SELECT device FROM cases) ORDER BY last LIMIT 1"
            for table, column in (("strike", "device"), ("device", "n")):
                db.execute(f"DELETE FROM {table} WHERE {column} = ({oldest})", (host,))
        return self._store.insert("device", host=host, name=key[1], serial=key[2], rank=rank, last=now)
