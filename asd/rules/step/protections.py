"""What protects a training, and what was asked for and does not: filled by the parts as they attach, said once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

from asd.records import fill
from asd.rules.readings import reading

_LOG = logging.getLogger("asd")
_MOST_TOLD = 4
"""Reasons in one line of the log; the status file has all."""
PLACES = {
    reading.GRADIENT: "gradients of activations",
    reading.WEIGHT_GRADIENT: "gradients of parameters",
    reading.AVERAGED: "mean gradients",
    reading.CHECKSUM: "results of matrix products",
    reading.TWICE: "calls made twice",
}
"""What is checked at a checkpoint, by its kind."""
_Names = Annotated[dict[str, list[str]], Meta(description="an object of lists of texts")]


@dataclass
class Protections:
    """What protects one training, and what does not.

    Attributes:
        on: What is on, with a few words about it.
        places: How many checkpoints there are of each of `PLACES`.
        missing: What a setting brings and is not active, or not everywhere, by the setting, with the reasons.
        unseen: Checkpoints of which the first step showed nothing, by what they are, such as the gradient of the
            network's own input, which nobody computes, and layers that no data reach.
    """

    on: Annotated[dict[str, str], Meta(description="an object of texts")] = field(default_factory=dict)
    places: Annotated[dict[str, int], Meta(description="an object of whole numbers")] = field(default_factory=dict)
    missing: _Names = field(default_factory=dict)
    unseen: _Names = field(default_factory=dict)
    _told: set[tuple[str, str]] = field(default_factory=set, repr=False)

    def begin(self) -> None:
        """Forgets a training that is over, but not what was told of it."""
        self.on, self.places, self.missing, self.unseen = {}, {}, {}, {}

    def has(self, **protections: str) -> None:
        """Says that protections are on, in a few words; without words, that one is not."""
        for name, words in protections.items():
            self.on[name.replace("_", " ")] = words
        self.on = {name: words for name, words in self.on.items() if words}

    def count(self, kinds: Iterable[str]) -> None:
        """Says of which kinds the checkpoints are."""
        counts = Counter(kinds)
        self.places = {words: counts[kind] for kind, words in PLACES.items() if counts[kind]}

    def lacks(self, setting: str, *reasons: str, told: bool = False) -> None:
        """Says that what `setting` asks for is not active, or not everywhere; nothing if there is no reason.

        Args:
            setting: Its variable, with the value where there are several.
            *reasons: Why.
            told: Whether another line of the log says so already, or nobody asked for it.
        """
        known = self.missing.setdefault(setting, []) if reasons else []
        known += [reason for reason in reasons if reason not in known]
        self._told |= {(setting, reason) for reason in reasons if told}

    def saw_none_of(self, words: str, names: Sequence[str]) -> None:
        """Says of which checkpoints the first step showed nothing; `words` is one of `PLACES`."""
        self.unseen.update({words: list(names)} if names else {})

    def sentence(self) -> str:
        """What is on, what is checked, and how much is missing, in one line."""
        where = ", ".join(f"{count} {words}" for words, count in self.places.items())
        checked = f"checked are {where}" if where else "NOTHING IS CHECKED"
        missing = f"; not active: {', '.join(self.missing)}" if self.missing else ""
        return f"{checked}; " + "; ".join(f"{name}: {words}" for name, words in self.on.items()) + missing

    def tell_all(self) -> None:
        """Logs the line at the start of a training."""
        _LOG.log(logging.INFO if self.places else logging.WARNING, "%s", self.sentence())

    def tell(self) -> None:
        """Logs what is missing, or was not seen, and was not told yet."""
        for words, names in self.unseen.items():
            if (words, "") not in self._told:
                self._told.add((words, ""))
                total = self.places.get(words, len(names))
                _LOG.info("not seen in the first step are %d of %d %s: %s", len(names), total, words, _some(names))
        for setting, reasons in self.missing.items():
            new = [reason for reason in reasons if (setting, reason) not in self._told]
            self._told |= {(setting, reason) for reason in new}
            if new:
                _LOG.warning("not active, or not everywhere: %s: %s", setting, _some(new))

    def to_json(self) -> dict[str, Any]:
        """The form that the status of a rank has."""
        missing = {setting: list(reasons) for setting, reasons in self.missing.items()}
        unseen = {words: list(names) for words, names in self.unseen.items()}
        return {"on": dict(self.on), "places": dict(self.places), "missing": missing, "unseen": unseen}

    @classmethod
    def together(cls, parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """One form for several trainings of a process, of which each gave its own."""
        whole = cls()
        for part in (fill(cls, part, "protections") for part in parts if part):
            whole.on.update(part.on)
            whole.places = dict(Counter(whole.places) + Counter(part.places))
            for own, more in ((whole.missing, part.missing), (whole.unseen, part.unseen)):
                for name, entries in more.items():
                    known = own.setdefault(name, [])
                    known += [entry for entry in entries if entry not in known]
        return whole.to_json()


def _some(reasons: Sequence[str]) -> str:
    more = f"; and {len(reasons) - _MOST_TOLD} more" if len(reasons) > _MOST_TOLD else ""
    return "; ".join(reasons[:_MOST_TOLD]) + more
