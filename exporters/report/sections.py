"""The tables of the report: ranks, events, evidence."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from asd.errors import how_many
from asd.event import Event
from asd.exporters.pictures.chart import SPACE, mark
from asd.exporters.pictures.markup import Html, name, number, tag, utc
from asd.exporters.report.bundles import SavedBundle
from asd.exporters.report.data import Rank, RunData, sort_of
from asd.exporters.report.tables import Row, note, table

_OPEN_RANKS, _MOST_RANKS, _MOST_EVENTS, _MOST_GRAVE, _MOST_BUNDLES = 24, 256, 300, 100, 40
_MOST_OF_HOST = 26  # letters in a row of the events; the table of ranks has the whole name
_STATES = {"lost": "ended without a final status", "silent": "not heard of", "": "no counts"}
_SHORT = {"first": "first level", "second": "second level", "follower": "refused elsewhere"}


def section(place: str, title: str, content: Sequence[Html]) -> Html:
    """Returns a section with its heading; empty without content."""
    return tag("section", tag("h2", title), content, id=place) if content else Html("")


def facts_of_rank(rank: Rank) -> dict[str, Any]:
    """Returns the values of one rank in the table of ranks; JSON-able."""
    names = ("run", "rank", "host", "device", "state", "isolated", "checks", "strikes", "refused", "last_step")
    counts = {"first": rank.count("first"), "second": rank.count("second"), "problems": rank.count("problem")}
    last = utc(rank.status.last_check) if rank.status else "-"
    return {name: getattr(rank, name) for name in names} | counts | {"last_check": last}


def ranks_table(data: RunData) -> list[Html]:
    """Returns a table with one row for each rank; with many ranks, those without events come last and are folded."""
    ranks = data.ranks
    if len(ranks) > _OPEN_RANKS:
        ranks = sorted(ranks, key=lambda rank: not rank.troubled)
    several = ["Run"] if len(data.runs) > 1 else []
    counts = ["Checks", "First level", "Second level", "Strikes", "Refused", "Problems", "Last step"]
    heads = ["Rank", *several, "Device", "State", *counts, "Last check"]
    rows = [_rank_row(rank, several) for rank in ranks[:_MOST_RANKS]]
    left = len(ranks) - len(rows)
    return [*table(heads, rows, opened=_OPEN_RANKS, noun="rank", left=left), *note(_strikes(data))]


def _rank_row(rank: Rank, several: Sequence[str]) -> Row:
    known = facts_of_rank(rank)
    state = [_STATES.get(rank.state, rank.state), *(["isolated"] if rank.isolated else [])]
    alarming = rank.state == "lost" or rank.isolated
    cells = [
        None if rank.rank < 0 else rank.rank,
        *([rank.run] if several else []),
        _device(rank),
        tag("td", ", ".join(state), class_="alarm" if alarming else None),
        *(known[key] for key in ("checks", "first", "second", "strikes", "refused", "problems", "last_step")),
        tag("td", known["last_check"], class_="time"),
    ]
    return Row(cells, "struck" if rank.count("first") else "")


def _strikes(data: RunData) -> str:
    if not any(rank.count("first") for rank in data.ranks):
        return ""
    policy = data.policy
    return (
        f"Strikes are those of the device within the last {policy.window_seconds / 60:g} minutes, in all runs of this "
        f"folder, as the fault handler counts them: {policy.strikes} isolate a device. Strikes that a replay "
        "attributed to software do not count."
    )


def _device(source: Rank | Event, longest: int = 200) -> Html:
    host = tag("span", name(source.host, longest), class_="host", title=source.host)
    return tag("td", tag("b", source.device), host, class_="name")


def events_table(data: RunData, where: str) -> list[Html]:
    """Returns the events in the order of time; of very many, the first serious ones and the newest."""
    total = len(data.events)
    kept = set(range(total))
    if total > _MOST_EVENTS:
        grave = [i for i, event in enumerate(data.events) if sort_of(event) not in ("second", "follower")][:_MOST_GRAVE]
        kept = {*grave, *range(total - _MOST_EVENTS + len(grave), total)}
    # By name only: the folder of the run may have been moved since.
    folders = {bundle.path.parts[-2:]: bundle for bundle in data.bundles}
    heads = ["Time", "Event", "Rank", "Device", "Step", "Checkpoint", "Value", "Limit", "What"]
    rows = [_event_row(data, data.events[i], folders, where) for i in sorted(kept)]
    words = f"{how_many(total, 'event')}, the newest last"
    words += ": the first grave ones and the newest; the logs have the rest." if len(kept) < total else "."
    return [*note(words), *table(heads, rows)] if rows else []


def _event_row(data: RunData, event: Event, folders: Mapping[tuple[str, ...], SavedBundle], where: str) -> Row:
    sort = sort_of(event)
    judged = event.kind == "anomaly"
    what: list[str] = [f"{event.verdict}: {event.reason[:300]}" if event.verdict else event.reason[:300]]
    if judged:
        done = "healed" if event.healed else "update refused" if event.refused else "update not refused"
        what.append(f"; {done}")
    bundle = folders.get(Path(event.evidence).parts[-2:])
    if bundle is not None:
        what += ["; ", tag("a", "evidence", href=_address(data, bundle.path, where))]
    elif event.evidence:
        what.append("; its evidence is not here")
    symbol = tag("svg", mark(sort, 9, 9), viewBox="0 0 18 18", class_="key", aria_hidden="true", xmlns=SPACE)
    cells = [
        tag("td", utc(event.time, digits=3), class_="time"),
        tag("td", symbol, " ", _SHORT.get(sort, sort), class_="sort"),
        None if event.rank < 0 else event.rank,
        _device(event, _MOST_OF_HOST),
        event.step or None,
        tag("td", name(event.checkpoint), class_="name site"),
        event.value if judged else None,
        event.limits[0] if judged and event.limits else None,
        tag("td", what, class_="what"),
    ]
    return Row(cells, sort)


def evidence(data: RunData, where: str) -> list[Html]:
    """Returns links to the evidence of each first-level anomaly."""
    cards = []
    for bundle in data.bundles[:_MOST_BUNDLES]:
        try:
            files = bundle.files()
        except OSError as error:
            data.unreadable[str(bundle.path)] = error.strerror or str(error)
            continue
        links = [
            tag("li", tag("a", path.name, href=_address(data, path, where)), f" {number(size / 1000)} kB")
            for path, size in files
        ]
        title = tag("a", f"rank {bundle.rank}, step {bundle.step:,}", href=_address(data, bundle.path, where))
        cards.append(tag("article", tag("h3", title), tag("ul", links, class_="files")))
    left = len(data.bundles) - _MOST_BUNDLES
    more = note(f"{left:,} more folders." if left > 0 else "")
    return [tag("div", cards, class_="bundles"), *more] if cards else more


def unreadable(data: RunData) -> list[Html]:
    """Returns the list of skipped files, with reasons."""
    items = [tag("li", tag("code", file, class_="name"), ": ", reason) for file, reason in data.unreadable.items()]
    return [tag("ul", items)] if items else []


def _address(data: RunData, path: Path, where: str) -> str:
    parts = path.relative_to(data.run_dir).parts
    return "/".join([where, *(quote(part.encode(errors="surrogateescape"), safe="") for part in parts)])
