"""What the pages take from the code itself: rooms, settings, commands, events and metrics.

`PARTS` has each by the name in `<!-- generated: NAME -->` of a page; `python docs/build/figures.py` fills them in.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import re
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from chinese import SETTINGS as CHINESE_SETTINGS
from chinese import VALID as CHINESE_VALID

from asd.cli import ALIASES, GROUPS, parser_of
from asd.config import describe
from asd.event import KINDS, LEVEL_NAMES, VERDICTS, Event
from asd.exporters.prometheus.agent import Agent
from asd.exporters.prometheus.handler import HandlerCollector
from asd.exporters.prometheus.node import NodeCollector
from asd.exporters.prometheus.rows import LABELS
from asd.handler.handler_counts import HandlerCounts
from asd.origin import Origin
from asd.settings.options import ASD_OPTIONS, OPTIONS
from asd.settings.table import VARIABLES
from asd.settings.values import Variable

ROOT = Path(__file__).resolve().parents[2]

_FOLDERS = ("asd", "operators", "exporters")
_OTHERS = {
    "tests": "mirrors the three folders; whole stories, real programs and trainings of all kinds beside them",
    "benchmarks": "cost, detection quality, scale: programs that print tables and write JSON into `benchmarks/results`",
    "examples": "short programs to copy, each run by a test; what `asd demo` plays is in `demo`",
    "deploy": "what runs agent and handler on Kubernetes, Slurm and plain hosts",
    "docs": "these pages, and the programs that make their tables and pictures",
}


def rooms() -> str:
    """Every package with the first sentence of its docstring."""
    lines = []
    for folder in _FOLDERS:
        for init in sorted((ROOT / folder).rglob("__init__.py"), key=lambda path: path.parent.parts):
            inside = init.parent.relative_to(ROOT / folder).parts
            if any(path.is_symlink() for path in init.parents):
                continue  # links to the other folders
            lines.append((f"`{'/'.join((folder, *inside))}/`", _first_sentence(init)))
    missing = {path.parent.name for path in ROOT.glob("*/__init__.py")} - set(_FOLDERS)
    if missing:
        raise KeyError(f"folders that no page knows: {', '.join(sorted(missing))}")
    table = _table(("folder", "what is in it"), lines)
    return (
        table + "\n" + _table(("folder", "what is in it"), [(f"`{name}/`", words) for name, words in _OTHERS.items()])
    )


def _first_sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    if not paragraph:
        raise ValueError(f"{path} has no docstring, so nobody can say what is in its folder")
    return paragraph


def settings() -> str:
    """Every variable with its default, what is valid, and what it is for; then the options of `ASD_OPTIONS`."""
    variables, options = (
        [
            (f"`{each.name}`", default, each.about, each.format.valid.removeprefix("it must be "))
            for each, default in rows
        ]
        for rows in _with_defaults()
    )
    head = "default", "what it is for", "valid"
    words = "`ASD_OPTIONS` is for experts: `name:value` pairs with commas between them, as `record:1,weight_hash:50`."
    return f"{_table(('variable', *head), variables)}\n{words}\n\n{_table(('option', *head), options)}"


def settings_in_chinese() -> str:
    """The settings in Chinese."""
    variables, options = (
        [(f"`{each.name}`", default, CHINESE_SETTINGS[each.name], CHINESE_VALID[each.name]) for each, default in rows]
        for rows in _with_defaults()
    )
    head = "默认值", "作用", "取值"
    words = "`ASD_OPTIONS` 供高级用户使用：以逗号分隔的 `name:value` 列表，例如 `record:1,weight_hash:50`。"
    return f"{_table(('环境变量', *head), variables)}\n{words}\n\n{_table(('选项', *head), options)}"


def _with_defaults() -> tuple[list[tuple[Variable, str]], list[tuple[Variable, str]]]:
    """The variables and the options, each with its default."""
    return (
        [(each, _default(each.name)) for each in VARIABLES],
        [(each, _default(f"{ASD_OPTIONS}:{each.name}")) for each in OPTIONS],
    )


def _default(name: str) -> str:
    value = next(each.value for each in describe({}) if each.name == name)
    return f"`{value}`" if value else "—"


def commands() -> str:
    """Every command as its parser describes it."""
    return "".join(f"## {group.capitalize()}\n\n" + "".join(map(_command, names)) for group, names in GROUPS.items())


def _command(name: str) -> str:
    parser = parser_of(name)
    alias = f" (also `asd {ALIASES[name]}`)" if name in ALIASES else ""
    prose, indented = _split(parser.description or "")
    text = [f"### asd {name}\n\n", f"{prose}{alias}\n\n"]
    usage = " ".join(parser.format_usage().split()).removeprefix("usage: ")
    wrapped = textwrap.fill(usage, 88, subsequent_indent=" " * len(f"asd {name} "), break_on_hyphens=False)
    text.append(f"```text\n{wrapped}\n```\n\n")
    rows = [row for action in parser._actions if (row := _option(action, parser))]
    text.append(_table(("argument", "meaning"), rows) + "\n")
    for part in (indented, parser.epilog or ""):
        if part.strip():
            text.append(f"```text\n{part.strip()}\n```\n\n")
    return "".join(text)


def _split(description: str) -> tuple[str, str]:
    """The paragraphs that are prose, and from the first that is laid out by hand on, the rest."""
    prose: list[str] = []
    paragraphs = inspect.cleandoc(description).split("\n\n")
    while paragraphs and not re.search(r"^  |:\n", paragraphs[0], re.MULTILINE):
        prose.append(paragraphs.pop(0))
    return "\n\n".join(prose), "\n\n".join(paragraphs)


def _option(action: argparse.Action, parser: argparse.ArgumentParser) -> tuple[str, str] | None:
    if action.help == argparse.SUPPRESS or isinstance(action, argparse._HelpAction):
        return None
    formatter = parser._get_formatter()
    words = ", ".join(action.option_strings) or str(action.metavar or action.dest)
    if action.option_strings and action.nargs != 0:
        words += " " + formatter._format_args(action, action.dest.upper())
    choices = action.choices if isinstance(action.choices, Iterable) else ()
    listed = ", ".join(map(str, choices)) if action.metavar is None else ""
    about = formatter._expand_help(action) if action.help else listed
    return f"`{words}`", about


def event_fields() -> str:
    """The fields of an event, as its class and that of its origin describe them."""
    described = {**_described(Origin), **_described(Event)}
    rows = [(f"`{name}`", about) for name, about in described.items() if name != "origin"]
    return (
        _table(("field of `data`", "meaning"), rows)
        + "\n"
        + _table(
            ("field", "values"),
            [
                ("`level`", ", ".join(f"`{level}`" for level in LEVEL_NAMES.values())),
                ("`kind`", ", ".join(f"`{kind}`" for kind in KINDS)),
                ("`verdict`", ", ".join(f"`{v}`" for v in VERDICTS)),
            ],
        )
    )


def _described(kind: type) -> dict[str, str]:
    text = inspect.getdoc(kind) or ""
    block = text[text.index("Attributes:") :]
    found = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", block, re.MULTILINE)
    if {name for name, _ in found} != {each.name for each in dataclasses.fields(kind)}:
        raise ValueError(f"the docstring of {kind.__name__} describes other fields than it has")
    return {name: " ".join(about.split()) for name, about in found}


def event_example() -> str:
    """One event as it is written."""
    return f"```json\n{_pretty(_example())}\n```\n"


def _example() -> Event:
    from asd.verdict import Level

    return Event(
        origin=Origin("llama", 1, "node-7", "Ascend:3"),
        step=18,
        checkpoint="model.layers.0.ffn_norm",
        value=3.69e33,
        limits=(1e6,),
        level=Level.ERROR,
        kind="anomaly",
        rule="threshold",
        feature="l2",
        reason="value above the first absolute threshold 1000000",
        refused=True,
        time=1795463923.5,
    )


def _pretty(event: Event) -> str:
    import json

    return json.dumps(json.loads(event.to_json()), indent=2)


def event_line() -> str:
    """The example of an event as the line in the log."""
    return f"```text\n{_example().sentence()}\n```\n"


def metrics() -> str:
    """Every series of the agent, as its collector describes them."""
    return _families(agent_collector().describe())


def agent_collector() -> NodeCollector:
    """The collector of an agent on a node where nothing trains."""
    with tempfile.TemporaryDirectory() as folder:
        agent = Agent([Path(folder)])
        agent.close()
    return NodeCollector(agent)


def handler_metrics() -> str:
    """Every series of the handler about itself."""
    return _families(HandlerCollector(HandlerCounts()).collect())


def _families(families: Iterable[object]) -> str:
    rows = []
    for family in families:
        name = family.name + ("_total" if family.type == "counter" else "")  # type: ignore[attr-defined]
        own = [label for label in getattr(family, "_labelnames", ()) if label not in LABELS]
        labels = "".join(f", `{label}`" for label in own)
        rows.append((f"`{name}`", f"{family.type}{labels}", family.documentation))  # type: ignore[attr-defined]
    return _table(("metric", "type, more labels", "meaning"), sorted(rows))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |\n" for line in lines
    )


PARTS: dict[str, Callable[[], str]] = {
    "rooms": rooms,
    "settings": settings,
    "settings.zh": settings_in_chinese,
    "commands": commands,
    "event fields": event_fields,
    "event example": event_example,
    "event line": event_line,
    "metrics": metrics,
    "handler metrics": handler_metrics,
}
