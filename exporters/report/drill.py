"""HTML page of a drill: each part with what was found and what to do about it."""

from collections.abc import Mapping
from typing import Any

from asd.exporters.pictures.markup import Html, tag
from asd.exporters.report.document import document
from asd.exporters.report.sections import section
from asd.exporters.report.tables import Row, note, table

_TITLES = {
    "fits": "Fits: the device, and what is checked in this training",
    "same": "Same: numbers with and without detection",
    "cost": "Cost: time and memory",
    "finds": "Finds: faults injected on the device",
    "quiet": "Quiet: alarms of healthy steps",
    "reaches": "Reaches: from the event to the handler",
}
_ICONS = {"held": "✔", "did not hold": "✖", "shown": "!", "not tried": "?"}


def render(versions: Mapping[str, Any], parts: Mapping[str, Any]) -> str:
    """Returns the page.

    Args:
        versions: Versions and the duration.
        parts: Parts of `asd.drill.job.Drill`, by name.
    """
    by_state = {state: [name for name, part in parts.items() if part.state == state] for state in _ICONS}
    failed, open_ones = by_state["did not hold"], by_state["not tried"]
    tone = "bad" if failed else "warn" if open_ones else "good"
    title = f"Did not hold: {', '.join(failed)}" if failed else "All parts that were tried held"
    lead = [f"{state}: {', '.join(names)}" for state, names in by_state.items() if names]
    banner = [tag("p", f"{title}.", class_="lead"), tag("ul", [tag("li", each) for each in lead], class_="more")]
    facts = "; ".join(f"{name} {value or 'not known'}" for name, value in versions.items())
    return document(
        f"Drill: {title}",
        [
            tag("header", tag("h1", "Drill of a training")),
            tag("section", [*banner, *note(facts)], class_=f"verdict {tone}"),
            *(section(name, f"{_ICONS[part.state]} {_TITLES[name]}", _part(part)) for name, part in parts.items()),
        ],
    )


def _part(part: Any) -> list[Html]:
    """Returns the content of one part: its state, findings, advice and tables."""
    content = [tag("p", tag("b", part.state)), tag("ul", [tag("li", each) for each in part.said])]
    content += [tag("p", "What to do: ", part.advice)] if part.advice else []
    content += table([str(head) for head in part.rows[0]], [Row(row) for row in part.rows[1:]]) if part.rows else []
    return [*content, tag("pre", "\n".join(part.private))] if part.private else content
