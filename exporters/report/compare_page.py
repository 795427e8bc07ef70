"""One HTML page that tells where two runs part: the answer, the bits, the counts, and the first rows that are wrong."""

from __future__ import annotations

from datetime import datetime, timezone

from asd.dumps.compare.comparison import ComparisonOutcome, Pair
from asd.dumps.compare.metrics import Metrics
from asd.dumps.compare.rows import Row
from asd.dumps.pairing.request import Request
from asd.exporters.pictures.markup import Html, name, tag, utc
from asd.exporters.report import sections
from asd.exporters.report.document import document

__all__ = ["render"]

_SHOWN = 100


def render(outcome: ComparisonOutcome, request: Request, *, version: str = "") -> str:
    """The page.

    Args:
        outcome: What came of the comparison.
        request: What was compared.
        version: Of the program that makes it.
    """
    parted = outcome.first is not None
    unmatched = any(pair.verdicts["Unmatched"] for pair in outcome.pairs)
    tone = "bad" if parted else "warn" if unmatched else "good"
    title = "The runs part" if parted else "No difference found"
    body = [
        tag("header", tag("h1", "Comparison of two runs"), _banner(outcome, tone, title)),
        sections.section("bits", "The first elements that differ", _elements(outcome.first)),
        sections.section("pairs", "What was compared", [_pairs(outcome)]),
        sections.section("rows", "The first rows to look at", _rows(outcome)),
        tag(
            "footer",
            tag("p", f"Made {utc(datetime.now(timezone.utc).timestamp())} by asd compare {version}."),
            tag("p", f"Run under test: {request.tested}. Trusted run: {request.trusted}."),
        ),
    ]
    return document(title, body)


def _banner(outcome: ComparisonOutcome, tone: str, title: str) -> Html:
    icon = {"bad": "✖", "warn": "!", "good": "✔"}[tone]
    return tag(
        "section",
        tag("p", tag("span", icon, class_="icon", aria_hidden="true"), " ", title, class_="tone"),
        tag("p", outcome.sentence, class_="lead"),
        tag("ul", [tag("li", note) for note in outcome.notes], class_="more") if outcome.notes else "",
        class_=f"verdict {tone}",
    )


def _elements(pair: Pair | None) -> list[Html]:
    difference = None if pair is None or pair.divergence is None else pair.divergence.difference
    if pair is None or pair.divergence is None or difference is None:
        return []
    rows = [
        _cells(
            str(list(element.index)), f"{element.trusted!r}", element.trusted_bits, f"{element.tested!r}",
            element.tested_bits, "-" if element.flipped is None else str(list(element.flipped)),
        )
        for element in difference.elements
    ]  # fmt: skip
    words = f"{pair.divergence.slot}: {difference.count} of {difference.size} elements differ."
    heads = ("Index", "Trusted", "Its bits", "Under test", "Its bits", "Bits that differ")
    return [*sections.note(words), sections.table(heads, rows)]


def _pairs(outcome: ComparisonOutcome) -> Html:
    rows = [
        _cells(
            pair.where or "-", pair.mode, str(pair.calls), str(pair.rows),
            ", ".join(f"{count} {verdict}" for verdict, count in sorted(pair.verdicts.items())),
            "-" if pair.divergence is None else pair.divergence.call,
            ", ".join(file.name for file in pair.files),
        )
        for pair in outcome.pairs
    ]  # fmt: skip
    return sections.table(("Step and rank", "By", "Calls", "Rows", "Verdicts", "Parts at", "Files"), rows)


def _rows(outcome: ComparisonOutcome) -> list[Html]:
    bad = [(pair, row) for pair in outcome.pairs for row in pair.bad]
    if not bad:
        return []
    rows = [_row(pair, row) for pair, row in bad[:_SHOWN]]
    heads = ("Step and rank", "Row", "Verdict", "Cosine", "Largest error", "Message")
    return [*sections.note(f"The first {len(rows)}; all of them are in the csv files."), sections.table(heads, rows)]


def _row(pair: Pair, row: Row) -> Html:
    metrics = row.metrics or Metrics.without_numbers("-", "")
    shown = [f"{value:.6g}" if isinstance(value, float) else value for value in (metrics.cosine, metrics.max_abs)]
    return tag(
        "tr",
        tag("td", pair.where or "-"),
        tag("td", name(row.name if row.tested is not None else row.trusted_name), class_="name"),
        [tag("td", text) for text in (row.verdict, *shown, row.message)],
    )


def _cells(*texts: str) -> Html:
    return tag("tr", [tag("td", text, class_="what") for text in texts])
