"""Protections of a training, active and missing: collected from the parts as they attach, reported once."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

from asd.errors import and_more
from asd.records import fill
from asd.rules import reading

_LOG = logging.getLogger("asd")
_MOST_TOLD = 4  # reasons in one line of the log; the status file has all
PLACES = {
    reading.GRADIENT: "gradients of activations",
    reading.WEIGHT_GRADIENT: "gradients of parameters",
    reading.AVERAGED: "mean gradients",
    reading.CHECKSUM: "results of matrix products",
    reading.TWICE: "calls made twice",
}
"""Checked tensors of a checkpoint, by its kind."""
_Names = Annotated[dict[str, list[str]], Meta(description="an object of lists of texts")]
_Texts = Annotated[dict[str, str], Meta(description="an object of texts")]
_Counts = Annotated[dict[str, int], Meta(description="an object of whole numbers")]


class Off(str):
    """Reason why a protection is off; passed instead of its words."""


@dataclass
class Protections:
    """Protections of one training."""

    on: _Texts = field(default_factory=dict)  # active protections, each with a few words
    # protections that are inactive here, each with the reason; `missing` has those that a setting asks for
    off: _Texts = field(default_factory=dict)
    # step after which a protection or setting came to its state, 0 for the start
    since: _Counts = field(default_factory=dict)
    places: _Counts = field(default_factory=dict)  # number of checkpoints by each of `PLACES`
    # protections that a setting asks for but that are inactive or incomplete, by setting, with the reasons
    missing: _Names = field(default_factory=dict)
    # checkpoints without a value in the first step, by their kind, such as the gradient of the network's own input,
    # which is never computed, and layers without data
    unseen: _Names = field(default_factory=dict)
    step: int = 0
    _told: set[tuple[str, str]] = field(default_factory=set, repr=False)

    def begin(self) -> None:
        """Forgets an earlier training, except for what was logged."""
        self.on, self.off, self.since, self.places, self.missing, self.unseen = {}, {}, {}, {}, {}, {}

    def has(self, **protections: str) -> None:
        """Sets protections to a few words each, or to the reason why one is `Off`; empty words remove one."""
        for name, words in ((key.replace("_", " "), words) for key, words in protections.items()):
            state, other = (self.off, self.on) if isinstance(words, Off) else (self.on, self.off)
            other.pop(name, None)
            if words and name not in state:
                self.since[name] = self.step
            state[name] = words
            if not words:
                del state[name]

    def count(self, kinds: Iterable[str]) -> None:
        """Counts the checkpoints by kind."""
        counts = Counter(kinds)
        self.places = {words: counts[kind] for kind, words in PLACES.items() if counts[kind]}
        self.since.setdefault("checked tensors", self.step)

    def lacks(self, setting: str, *reasons: str, told: bool = False) -> None:
        """Adds reasons why a setting is inactive or incomplete; does nothing without a reason.

        Args:
            setting: Its variable, with the value if there are several.
            *reasons: Reasons.
            told: Whether another log line reports it already, or the user did not set it.
        """
        known = self.missing.setdefault(setting, []) if reasons else []
        if reasons:
            self.since.setdefault(setting, self.step)
        known += [reason for reason in reasons if reason not in known]
        self._told |= {(setting, reason) for reason in reasons if told}

    def sentence(self) -> str:
        """Returns active protections, checked tensors and missing protections, in one line."""
        where = ", ".join(f"{count} {words}" for words, count in self.places.items())
        checked = f"checked are {where}" if where else "NOTHING IS CHECKED"
        missing = f"; not active: {', '.join(self.missing)}" if self.missing else ""
        on = (f"{name}: {words}" for name, words in self.on.items())
        return "; ".join((checked, *on, *(f"{name} is off: {why}" for name, why in self.off.items()))) + missing

    def tell(self, *, all_of_them: bool = False) -> None:
        """Logs missing protections and unseen checkpoints that were not logged yet; on request after all that is on."""
        if all_of_them:
            _LOG.log(logging.INFO if self.places else logging.WARNING, "%s", self.sentence())
        for words, names in self.unseen.items():
            if (words, "") not in self._told:
                self._told.add((words, ""))
                total, some = self.places.get(words, len(names)), and_more(names, _MOST_TOLD)
                _LOG.info("not seen in the first step are %d of %d %s: %s", len(names), total, words, some)
        for setting, reasons in self.missing.items():
            new = [reason for reason in reasons if (setting, reason) not in self._told]
            self._told |= {(setting, reason) for reason in new}
            if new:
                _LOG.warning("not active, or not everywhere: %s: %s", setting, and_more(new, _MOST_TOLD, "; "))

    def to_json(self) -> dict[str, Any]:
        """Returns the form in the status of a rank."""
        return {name: deepcopy(getattr(self, name)) for name in ("on", "off", "since", "places", "missing", "unseen")}

    @classmethod
    def together(cls, parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Merges the forms of several trainings of one process."""
        whole = cls()
        for part in (fill(cls, part, "protections") for part in parts if part):
            whole.on.update(part.on)
            whole.off.update(part.off)
            whole.since = {**part.since, **whole.since}
            whole.places = dict(Counter(whole.places) + Counter(part.places))
            for own, more in ((whole.missing, part.missing), (whole.unseen, part.unseen)):
                for name, entries in more.items():
                    known = own.setdefault(name, [])
                    known += [entry for entry in entries if entry not in known]
        return whole.to_json()
