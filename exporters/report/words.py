"""The verdict on a run in words: what an operator reads first, and often the only thing."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from asd.errors import and_more, how_many
from asd.event import Event
from asd.exporters.pictures.markup import number, utc
from asd.exporters.report.data import SORTS, Rank, RunData, sort_of
from asd.verdict import Level

_MOST_NAMED = 4
_LONGEST = 200  # characters of a name
_FOUND = {
    "transient": "hardware that failed once",
    "persistent": "hardware that fails each time",
    "software": "software or data, not the device",
    "undetermined": "no cause",
}


class RunVerdict(NamedTuple):
    """Verdict on a run, in words."""

    tone: str  # `bad`: a first-level anomaly; `warn`: something else to look at; `good`: nothing; `unknown`: no data
    title: str  # the tone in two or three words
    lead: str  # the one or two sentences that matter most
    more: list[str]  # further sentences


def verdict_on(data: RunData) -> RunVerdict:
    """Returns the verdict on a run."""
    more = [*_second_level(data), *_replays(data), *_actions(data), *_lost(data), *_problems(data), *_missing(data)]
    checks = sum(rank.checks for rank in data.ranks)
    if data.count("first"):
        return RunVerdict("bad", "Anomaly found", _first_level(data), more)
    steps = max((rank.last_step for rank in data.ranks), default=0)
    if checks:
        lead = f"No {'first-level ' if data.count('second') else ''}anomaly in {checks:,} checks of "
        lead += f"{how_many(len(data.ranks), 'rank')}{f', up to step {steps:,}' if steps else ''}."
    elif data.ranks and not more:
        lead = "Nothing was checked yet."
    elif data.ranks:
        lead = "No anomaly is recorded, but the number of checks is unknown."
    else:
        lead = "This folder holds no events and no counts of a run, so nothing can be said about it."
        return RunVerdict("unknown", "Nothing recorded", lead, more)
    if not more:
        return RunVerdict("good" if checks else "unknown", "No anomaly" if checks else "Nothing checked", lead, more)
    return RunVerdict("warn", "Needs a look", f"{more[0]} {lead}", more[1:])


def _named(rank: Rank) -> str:
    return f"{rank.device_name} (rank {rank.rank})" if rank.rank >= 0 else rank.device_name


def _listed(names: Iterable[str]) -> str:
    unique = list(dict.fromkeys(names))
    if len(unique) > _MOST_NAMED:
        return and_more(unique, _MOST_NAMED)
    return " and ".join([", ".join(unique[:-1]), unique[-1]] if len(unique) > 1 else unique)


def _first_level(data: RunData) -> str:
    hit = [rank for rank in data.ranks if rank.count("first")]
    total, known = data.count("first"), [event for event in data.events if sort_of(event) == "first"]
    devices, runs = len({(rank.host, rank.device) for rank in hit}), len({rank.run for rank in hit})
    where = "on " + (_listed(map(_named, hit)) if devices == 1 else how_many(devices, "device"))
    where += f" in {how_many(runs, 'run')}" if runs > 1 else ""
    lead = f"{how_many(total, *SORTS['first'])} {where}"
    if not known:
        return f"{lead}; {'its event is' if total == 1 else 'their events are'} not in the logs."
    order = {run: i for i, run in enumerate(data.runs)}
    # Steps tell the order within a run; where they are not known, times do.
    stepless = not all(event.step for event in known)
    places = [(0, 0) if stepless else (order[event.run], event.step) for event in known]
    # A wrong gradient reaches all ranks in one step: the one that a replay names is told, not the one that wrote first.
    accused = data.accused
    first = min(
        zip(places, known, strict=True), key=lambda each: (each[0], each[1].origin not in accused, each[1].time)
    )[1]
    lead += ", " if total == 1 else ", first "
    lead += f"on {_named(next(rank for rank in data.ranks if rank.origin == first.origin))} " if devices > 1 else ""
    lead += f"{_at(first)} (value {number(first.value)}"
    lead += f", limit {number(first.limits[0])}); " if first.limits else "); "
    return lead + f"{_refusal(known, followed=bool(data.count('follower')))}{_others(data, hit, first)}."


def _at(event: Event) -> str:
    step = f"at step {event.step:,}" if event.step else f"at {utc(event.time)}"
    site = event.checkpoint
    site = site if len(site) <= _LONGEST else f"{site[:_LONGEST]}…"
    return f"{step} in {site}" if site else step


def _refusal(events: Sequence[Event], *, followed: bool) -> str:
    updates: dict[tuple[str, int], bool] = {}
    for event in (event for event in events if event.step):  # others, such as the vendor's, say nothing of updates
        place = event.run, event.step
        updates[place] = updates.get(place, False) or event.harmless
    refused, healed = sum(updates.values()), any(event.healed for event in events)
    if not updates:
        return "whether updates were refused is not known"
    if len(updates) == 1:
        done = "healed" if healed else "refused"
        return (
            f"the update was {done}{' on all ranks' if followed else ''}" if refused else "the update was not refused"
        )
    done = "refused or healed" if healed else "refused"
    if refused in (0, len(updates)):
        return f"{'all' if refused else 'none'} of the {len(updates):,} updates {'were' if refused else 'was'} {done}"
    return f"{refused:,} of {len(updates):,} updates were {done}"


def _others(data: RunData, hit: Sequence[Rank], first: Event) -> str:
    others = [rank for rank in data.ranks if rank not in hit and rank.run == first.run and rank.checks]
    return "; no other rank broke a first-level limit" if others else ""


def _second_level(data: RunData) -> list[str]:
    total = data.count("second")
    if not total:
        return []
    where = _listed(_named(rank) for rank in data.ranks if rank.count("second"))
    return [
        f"{how_many(total, *SORTS['second'])}, which {'is a warning' if total == 1 else 'are warnings'}, on {where}."
    ]


def _replays(data: RunData) -> list[str]:
    found = Counter(
        (event.run, event.rank, event.device, event.step, event.verdict)
        for event in data.events
        if event.kind == "replay" and event.verdict
    )
    sentences = [
        f"The replay of step {step:,} of rank {rank} on {device} found {_FOUND[verdict]} ({verdict})."
        for _, rank, device, step, verdict in found
    ]
    return _at_most(sentences, "replay verdict")


def _actions(data: RunData) -> list[str]:
    last: dict[tuple[str, str], list[Event]] = {}
    for event in data.events:
        if event.kind in ("isolation", "recovery") and event.recovered_by != "vendor":
            last.setdefault((event.host, event.device), []).append(event)
    sentences = []
    for (host, device), events in last.items():
        words = [
            f"{'isolated' if event.kind == 'isolation' else 'released'} at {utc(event.time)}" for event in events[-2:]
        ]
        sentences.append(f"{host} device {device} was {' and '.join(words)}.")
    for event in data.events:
        if event.kind == "stress":
            what = "computed wrongly" if event.level is Level.ERROR else "made no mistake"
            sentences.append(f"{event.host} device {event.device} {what} in a stress test at {utc(event.time)}.")
    return _at_most(sentences, "action")


def _lost(data: RunData) -> list[str]:
    lost = [rank for rank in data.ranks if rank.state == "lost"]
    silent = [rank for rank in data.ranks if rank.state == "silent"]
    sentences = []
    if lost:
        heard = max(rank.status.written for rank in lost if rank.status)
        what = "left no final status: its process is" if len(lost) == 1 else "left no final status: they are"
        sentences.append(f"{_listed(map(_named, lost))} {what} gone, last seen at {utc(heard)}.")
    if silent:
        heard = max(rank.status.written for rank in silent if rank.status)
        verb = "has" if len(silent) == 1 else "have"
        sentences.append(f"{_listed(map(_named, silent))} {verb} reported nothing since {utc(heard)}.")
    return sentences


def _problems(data: RunData) -> list[str]:
    total, sentences = data.count("problem"), []
    if total:
        reasons = Counter(event.reason for event in data.events if event.kind == "problem")
        said = _listed(f"“{reason[:200]}”" for reason, _ in reasons.most_common())
        where = _listed(_named(rank) for rank in data.ranks if rank.count("problem"))
        sentences.append(
            f"The detector itself had {how_many(total, 'problem')} on {where}{f': {said}' if said else ''}."
        )
    dropped: Counter[str] = Counter()
    for rank in data.ranks:
        dropped.update(
            {sink: count for sink, count in (rank.status.dropped if rank.status else {}).items() if count > 0}
        )
    if dropped:
        sinks = ", ".join(f"{sink} {how_many(count, 'time')}" for sink, count in dropped.most_common())
        sentences.append(f"Some output was lost in {sinks}.")
    return sentences


def _missing(data: RunData) -> list[str]:
    sentences = []
    missing = data.count("first") - sum(rank.events["first"] for rank in data.ranks)
    if 0 < missing < data.count("first"):
        sentences.append(f"The events of {how_many(missing, *SORTS['first'])} that were counted are not in the logs.")
    if data.unreadable:
        files = how_many(len(data.unreadable), "file")
        sentences.append(f"{files} could not be read to the end; they are named below.")
    return sentences


def _at_most(sentences: list[str], noun: str) -> list[str]:
    if len(sentences) <= _MOST_NAMED:
        return sentences
    return [*sentences[:_MOST_NAMED], f"There are {how_many(len(sentences) - _MOST_NAMED, 'more ' + noun)}."]
