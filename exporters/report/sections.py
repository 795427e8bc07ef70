"""The tables of the report: ranks, events, evidence, settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from asd.event import Event
from asd.exporters.pictures.chart import SPACE, mark
from asd.exporters.pictures.markup import Html, name, number, tag, utc
from asd.exporters.report.bundles import SavedBundle, facts, tensor_facts
from asd.exporters.report.data import SORTS, Rank, RunData, sort_of
from asd.exporters.report.words import counted

__all__ = [
    "events_table",
    "evidence",
    "facts_of_rank",
    "note",
    "ranks_table",
    "section",
    "settings",
    "symbol",
    "table",
    "unreadable",
]

_MOST_OPEN_RANKS, _MOST_RANKS, _MOST_EVENTS, _MOST_GRAVE = 24, 256, 300, 100
_MOST_BUNDLES = 40
_MOST_OF_HOST = 26  # letters in a row of the events; the table of ranks has the whole name
_NUMBERS = {
    "Rank", "Checks", "First level", "Second level", "Strikes", "Refused", "Problems", "Last step", "Step", "Value",
    "Limit", "Last value", "Value / limit",
}  # fmt: skip
"""Heads of columns that hold numbers."""
_STATES = {"lost": "ended without saying so", "silent": "not heard of", "": "no counts"}
_SHORT = {"first": "first level", "second": "second level", "follower": "refused elsewhere"}


def section(place: str, title: str, content: Sequence[Html]) -> Html:
    """A section with its heading; nothing when it has no content."""
    return tag("section", tag("h2", title), content, id=place) if content else Html("")


def symbol(drawn: Html) -> Html:
    """A mark of the timeline within text."""
    return tag("svg", drawn, viewBox="0 0 18 18", class_="key", aria_hidden="true", xmlns=SPACE)


def note(words: str) -> list[Html]:
    """A remark in small print; nothing without words."""
    return [tag("p", words, class_="note")] if words else []


def table(heads: Iterable[str], rows: Iterable[Html]) -> Html:
    """A table that scrolls by itself where it is wider than the page."""
    row = tag(
        "thead", tag("tr", [tag("th", head, scope="col", class_="num" if head in _NUMBERS else None) for head in heads])
    )
    return tag("div", tag("table", row, tag("tbody", rows)), class_="scroll", tabindex="0")


def facts_of_rank(rank: Rank) -> dict[str, Any]:
    """What the table of ranks says about one; JSON-able."""
    return {
        "run": rank.run, "rank": rank.rank, "host": rank.host, "device": rank.device, "state": rank.state,
        "isolated": rank.isolated, "checks": rank.checks, "first": rank.count("first"), "second": rank.count("second"),
        "strikes": rank.strikes, "refused": rank.refused, "problems": rank.count("problem"),
        "last_step": rank.last_step, "last_check": utc(rank.status.last_check) if rank.status else "-",
    }  # fmt: skip


def ranks_table(data: RunData) -> list[Html]:
    """One row for each rank; of many, those without events are folded, of very many, left out."""
    if not data.ranks:
        return []
    shown = data.ranks
    folded: list[Rank] = []
    if len(data.ranks) > _MOST_OPEN_RANKS:
        shown = [rank for rank in data.ranks if rank.troubled][:_MOST_RANKS]
        folded = [rank for rank in data.ranks if not rank.troubled][: _MOST_RANKS - len(shown)]
    content = [_ranks(data, shown)] if shown else []
    left = len(data.ranks) - len(shown) - len(folded)
    if folded:
        words = f"{counted(len(folded), 'more rank' if shown else 'rank')} without events"
        content.append(tag("details", tag("summary", words), _ranks(data, folded)))
    return [*content, *note(f"{counted(left, 'more rank')} left out." if left else ""), *note(_strikes(data))]


def _strikes(data: RunData) -> str:
    if not any(rank.count("first") for rank in data.ranks):
        return ""
    policy = data.policy
    return (
        f"Strikes are those of the device within the last {policy.window_seconds / 60:g} minutes, in all runs of this "
        f"folder, as the fault handler counts them: {policy.strikes} take a device out. What a replay laid on software "
        "is none."
    )


def _ranks(data: RunData, ranks: Sequence[Rank]) -> Html:
    several = len(data.runs) > 1
    heads = ["Rank", *(["Run"] if several else []), "Device", "State", "Checks", "First level", "Second level",
             "Strikes", "Refused", "Problems", "Last step", "Last check"]  # fmt: skip
    rows = []
    for rank in ranks:
        known = facts_of_rank(rank)
        state = [_STATES.get(rank.state, rank.state), *(["isolated"] if rank.isolated else [])]
        counts = [known[key] for key in ("checks", "first", "second", "strikes", "refused", "problems", "last_step")]
        cells = [
            tag("th", "-" if rank.rank < 0 else str(rank.rank), class_="num", scope="row"),
            *([tag("td", rank.run, class_="name")] if several else []),
            tag("td", _device(rank), class_="name"),
            tag("td", ", ".join(state), class_="alarm" if rank.state == "lost" or rank.isolated else None),
            *(tag("td", f"{count:,}", class_="num" if count else "num nought") for count in counts),
            tag("td", known["last_check"], class_="time"),
        ]
        rows.append(tag("tr", cells, class_="struck" if rank.count("first") else None))
    return table(heads, rows)


def _device(source: Rank | Event, longest: int = 200) -> list[Html]:
    return [tag("b", source.device), tag("span", name(source.host, longest), class_="host", title=source.host)]


def events_table(data: RunData, where: str) -> list[Html]:
    """The events in the order of time; of very many, the first grave ones and the newest."""
    total = len(data.events)
    if not total:
        return []
    kept = set(range(total))
    if total > _MOST_EVENTS:
        grave = [i for i, event in enumerate(data.events) if sort_of(event) not in ("second", "follower")]
        kept = set(grave[:_MOST_GRAVE]) | set(range(total - _MOST_EVENTS + len(grave[:_MOST_GRAVE]), total))
    # By name only: the folder of the run may have moved since.
    folders = {bundle.path.parts[-2:]: bundle for bundle in data.bundles}
    heads = ["Time", "Event", "Rank", "Device", "Step", "Checkpoint", "Value", "Limit", "What"]
    rows = {i: _event_row(data, data.events[i], folders, where) for i in sorted(kept)}
    left = total - len(kept)
    words = f"{counted(total, 'event')}, the newest last."
    if left:
        words = (
            f"{counted(total, 'event')}, the newest last: the first grave ones and the newest; the logs have the rest."
        )
        newest = next(i for i in range(total - 1, -1, -1) if i - 1 not in kept)
        rows[newest] = Html(_gap([data.events[i] for i in range(total) if i not in kept], len(heads)) + rows[newest])
    return [*note(words), table(heads, rows.values())]


def _gap(events: Sequence[Event], columns: int) -> Html:
    sorts = Counter(map(sort_of, events))
    words = ", ".join(counted(sorts[sort], *SORTS[sort]) for sort in SORTS if sorts[sort])
    return tag("tr", tag("td", f"{words} left out before this", colspan=columns), class_="gap")


def _event_row(data: RunData, event: Event, folders: Mapping[tuple[str, ...], SavedBundle], where: str) -> Html:
    sort = sort_of(event)
    judged = event.kind == "anomaly"
    what: list[str] = [f"{event.verdict}: {event.reason[:300]}" if event.verdict else event.reason[:300]]
    if judged:
        what.append("; update refused" if event.refused else "; update not refused")
    bundle = folders.get(Path(event.evidence).parts[-2:])
    if bundle is not None:
        what += ["; ", tag("a", "evidence", href=_address(data, bundle.path, where))]
    elif event.evidence:
        what.append("; its evidence is not here")
    cells = [
        tag("td", utc(event.time, digits=3), class_="time"),
        tag("td", symbol(mark(sort, 9, 9)), " ", _SHORT.get(sort, sort), class_="sort"),
        tag("td", "-" if event.rank < 0 else str(event.rank), class_="num"),
        tag("td", _device(event, _MOST_OF_HOST), class_="name"),
        tag("td", f"{event.step:,}" if event.step else "-", class_="num"),
        tag("td", name(event.checkpoint), class_="name site"),
        tag("td", number(event.value) if judged else "", class_="num"),
        tag("td", number(event.limits[0]) if judged and event.limits else "", class_="num"),
        tag("td", what, class_="what"),
    ]
    return tag("tr", cells, class_=sort)


def evidence(data: RunData, where: str) -> list[Html]:
    """What is kept about each first-level anomaly: links to the files and the statistics of the tensor."""
    cards = []
    for bundle in data.bundles[:_MOST_BUNDLES]:
        try:
            files = bundle.files()
        except OSError as error:
            data.unreadable[str(bundle.path)] = error.strerror or str(error)
            continue
        links = [
            tag("li", tag("a", path.name, href=_address(data, path, where)), f" {_size(size)}") for path, size in files
        ]
        known = tensor_facts(bundle.path / "tensor.json", data.unreadable)
        title = tag("a", f"rank {bundle.rank}, step {bundle.step:,}", href=_address(data, bundle.path, where))
        cards.append(tag("article", tag("h3", title), tag("ul", links, class_="files"), *_facts("", known)))
    left = len(data.bundles) - _MOST_BUNDLES
    return [
        *([tag("div", cards, class_="bundles")] if cards else []),
        *note(f"{left:,} more folders." if left > 0 else ""),
    ]


def settings(data: RunData) -> list[Html]:
    """Settings and versions as the newest evidence of each run has them."""
    newest = {bundle.folder: bundle for bundle in sorted(data.bundles, key=lambda bundle: bundle.step)}
    content = []
    for folder, bundle in newest.items():
        whose = f" of {folder}" if len(newest) > 1 else ""
        content += _facts(f"Settings{whose}", facts(bundle.path / "config.json", data.unreadable))
        content += _facts(f"Versions{whose}", facts(bundle.path / "versions.json", data.unreadable))
    return [tag("div", content, class_="bundles")] if content else []


def unreadable(data: RunData) -> list[Html]:
    """The files that were passed over, and why."""
    items = [tag("li", tag("code", file, class_="name"), ": ", reason) for file, reason in data.unreadable.items()]
    return [tag("ul", items)] if items else []


def _facts(title: str, known: Sequence[tuple[str, str]]) -> list[Html]:
    if not known:
        return []
    rows = [tag("tr", tag("th", key, scope="row"), tag("td", value, class_="name")) for key, value in known]
    facts_table = tag("table", tag("tbody", rows), class_="facts")
    return [tag("article", tag("h3", title), facts_table) if title else facts_table]


def _address(data: RunData, path: Path, where: str) -> str:
    inside = "/".join(
        quote(part.encode(errors="surrogateescape"), safe="") for part in path.relative_to(data.run_dir).parts
    )
    return f"{where}/{inside}"


def _size(size: int) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000  # type: ignore[assignment]
    return f"{size:.1f} GB"
