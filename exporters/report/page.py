"""HTML page about a run: no script, nothing from elsewhere, and every text of a file escaped."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from asd import fault_code
from asd.exporters.pictures.markup import Html, tag, utc
from asd.exporters.report import sections
from asd.exporters.report.data import SORTS, RunData
from asd.exporters.report.document import document
from asd.exporters.report.values import value_plots
from asd.exporters.report.words import RunVerdict, verdict_on

_MOST_CODES = 5


def render(data: RunData, output: Path, *, now: float, version: str = "") -> str:
    """Returns the page.

    Args:
        data: Content of the run's files.
        output: Path of the page; links to the evidence are relative to its folder.
        now: Time of the report, in seconds since the epoch.
        version: Version of this program.
    """
    where = _link_from(output.parent, data.run_dir)
    body = [
        sections.section("ranks", "Ranks and devices", sections.ranks_table(data)),
        sections.section("values", "Feature values and limits", value_plots(data)),
        sections.section("events", "Events", sections.events_table(data, where)),
        sections.section("evidence", "Evidence", sections.evidence(data, where)),
        # Last, since it also lists files that the sections above could not read.
        sections.section("unreadable", "What could not be read", sections.unreadable(data)),
        tag("footer", tag("p", f"Made {utc(now)} by asd report {version} from {data.run_dir}. All times are UTC.")),
    ]
    verdict = verdict_on(data)
    title = f"{verdict.title}: {', '.join(data.runs[:3]) or data.run_dir.name}"
    return document(title, [_header(data, verdict), *body])


def summary(data: RunData) -> dict[str, Any]:
    """Returns the content of the page for programs; JSON-able."""
    verdict = verdict_on(data)
    return {
        "run_dir": str(data.run_dir),
        "runs": data.runs,
        "verdict": verdict._asdict(),
        "codes": {code: fault_code.decode(code)._asdict() for code in _codes(data)},
        "checks": sum(rank.checks for rank in data.ranks),
        "refused": data.refused,
        "events": {sort: data.count(sort) for sort in SORTS},
        "ranks": [sections.facts_of_rank(rank) for rank in data.ranks],
        "evidence": [str(bundle.path) for bundle in data.bundles],
        "unreadable": data.unreadable,
    }


def _codes(data: RunData) -> list[str]:
    return list(dict.fromkeys(event.code for event in data.events if event.kind == "anomaly"))[:_MOST_CODES]


def _link_from(folder: Path, run_dir: Path) -> str:
    """Returns the relative address of the run folder, percent-encoded."""
    # The dot prevents a first part with a colon from being taken for a scheme.
    return "./" + quote(os.fsencode(os.path.relpath(run_dir.resolve(), folder.resolve())))


def _header(data: RunData, verdict: RunVerdict) -> Html:
    icons = {"bad": "✖", "warn": "!", "good": "✔", "unknown": "?"}
    names = ", ".join(data.runs[:3]) + (f" and {len(data.runs) - 3:,} more" if len(data.runs) > 3 else "")
    banner = [
        tag(
            "p", tag("span", icons[verdict.tone], class_="icon", aria_hidden="true"), f" {verdict.title}", class_="tone"
        ),
        tag("p", verdict.lead, class_="lead"),
        tag("ul", [tag("li", sentence) for sentence in verdict.more], class_="more") if verdict.more else Html(""),
        *map(_about_code, _codes(data)),
    ]
    return tag(
        "header",
        tag("h1", "Report of run ", tag("span", names or data.run_dir.name, class_="name")),
        tag("section", banner, class_=f"verdict {verdict.tone}"),
    )


def _about_code(code: str) -> Html:
    known = fault_code.decode(code)
    words = [
        f"node type {known.node_type}, sensor type {known.sensor_type}, event state {known.state}"
        if known.node_type
        else "",
        f"severity {known.severity}" if known.severity else "",
        f"handling {known.handling}" if known.handling else "",
    ]
    said = "; ".join(filter(None, words)) or "not a code of the driver's layout"
    return tag("p", "Fault code ", tag("code", code), f": {said}", class_="code")
