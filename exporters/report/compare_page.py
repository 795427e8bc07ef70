"""One HTML page that tells where two runs part: the answer, the bits, the counts, and the first rows that are wrong."""

from __future__ import annotations

from datetime import datetime, timezone

from asd.dumps.compare.comparison import ComparisonOutcome, Pair
from asd.dumps.compare.metrics import Metrics
from asd.dumps.compare.rows import ComparedRow
from asd.dumps.pairing.request import Request
from asd.exporters.pictures.markup import Html, name, tag, utc
from asd.exporters.report.document import document
from asd.exporters.report.sections import section
from asd.exporters.report.tables import Row, note, table

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
        section("bits", "The first elements that differ", _elements(outcome.first)),
        section("pairs", "What was compared", _pairs(outcome)),
        section("rows", "The first rows to look at", _rows(outcome)),
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
        tag("ul", [tag("li", remark) for remark in outcome.notes], class_="more") if outcome.notes else "",
        class_=f"verdict {tone}",
    )


def _elements(pair: Pair | None) -> list[Html]:
    difference = None if pair is None or pair.divergence is None else pair.divergence.difference
    if pair is None or pair.divergence is None or difference is None:
        return []
    rows = [
        _row(
            list(element.index),
            element.trusted,
            element.trusted_bits,
            element.tested,
            element.tested_bits,
            "-" if element.flipped is None else list(element.flipped),
        )
        for element in difference.elements
    ]
    words = f"{pair.divergence.slot}: {difference.count} of {difference.size} elements differ."
    heads = ("Index", "Trusted", "Its bits", "Under test", "Its bits", "Bits that differ")
    return [*note(words), *table(heads, rows)]


def _pairs(outcome: ComparisonOutcome) -> list[Html]:
    rows = [
        _row(
            pair.where or "-",
            pair.mode,
            pair.calls,
            pair.rows,
            ", ".join(f"{count} {verdict}" for verdict, count in sorted(pair.verdicts.items())),
            "-" if pair.divergence is None else pair.divergence.call,
            ", ".join(file.name for file in pair.files),
        )
        for pair in outcome.pairs
    ]
    return table(("Step and rank", "By", "Calls", "Rows", "Verdicts", "Parts at", "Files"), rows)


def _rows(outcome: ComparisonOutcome) -> list[Html]:
    bad = [(pair, row) for pair in outcome.pairs for row in pair.bad]
    rows = [_bad_row(pair, row) for pair, row in bad[:_SHOWN]]
    heads = ("Step and rank", "Row", "Verdict", "Cosine", "Largest error", "Message")
    return [*note(f"The first {len(rows)}; all of them are in the csv files."), *table(heads, rows)] if rows else []


def _bad_row(pair: Pair, row: ComparedRow) -> Row:
    metrics = row.metrics or Metrics.without_numbers("-", "")
    shown = [f"{value:.6g}" if isinstance(value, float) else value for value in (metrics.cosine, metrics.max_abs)]
    call = tag("td", name(row.name if row.tested is not None else row.trusted_name), class_="name")
    return _row(pair.where or "-", call, row.verdict, *shown, row.message)


def _row(*cells: object) -> Row:
    return Row([cell if isinstance(cell, Html) else tag("td", str(cell), class_="what") for cell in cells])
