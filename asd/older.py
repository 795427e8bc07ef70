"""Sentences and names that earlier versions stored: read once and converted, and understood nowhere else."""

from collections.abc import Mapping
from typing import Any

_BY_HANDLER = {"it had no fault for": "quiet", "its strikes turned out to be software or data": "acquitted"}
_ENDINGS = _BY_HANDLER | {
    "by hand": "person",
    "somebody else gave it back": "engine",
    "it passed a stress test": "passed",
    "another one is in its place": "replaced",
    "is another machine by now": "replaced",
    "the dry run has ended": "restart",
    "the isolator none took nothing out": "restart",
    "the handler that acted before": "predecessor",
}
_CAUSES = {
    "the very same value in step": "moved",
    "it has ": "strikes",
    "its strikes of the last months": "strikes",
    "it computed wrongly in a stress test": "stress",
    "the replay of": "replay",
}
_WANTS_TEST = "; it is given back after a stress test that it passes"


def renamed(data: Any) -> Any:
    """Returns saved data with the key `detectors`, which was `tiers` before version 1.0."""
    return {"detectors": data["tiers"], **data} if isinstance(data, Mapping) and "tiers" in data else data


def recovered_by(rule: object, reason: object) -> str:
    """Returns the source of a recovery; events read from a vendor's log have the rule `driver`."""
    return "vendor" if rule == "driver" else "handler" if _of(_BY_HANDLER, f"{reason}") else "person"


def case_fields(reason: str, why_released: str) -> dict[str, object]:
    """Returns the fields of a case that were parts of its two sentences, with the first of these as it is now."""
    bare = reason.removesuffix(_WANTS_TEST)
    ending = (_of(_ENDINGS, why_released) or "person") if why_released else ""
    return {"reason": bare, "wants_test": bare != reason, "cause": _of(_CAUSES, bare) or "replay", "ending": ending}


def _of(words: dict[str, str], sentence: str) -> str:
    return next((value for part, value in words.items() if part in sentence), "")
