"""Which results are older than the code they are about."""

from __future__ import annotations

import subprocess
from functools import cache

from tables.cells import RESULTS, measured, table

_JUDGING = ("operators", "asd/rules", "asd/judge", "asd/diagnosis")
_DUMPS = ("operators/debugger", "asd/dumps")
CODE = {
    "held_out": _JUDGING,
    "zoo": _JUDGING,
    "overhead": _JUDGING,
    "ascend": ("operators",),
    "cost": ("operators",),
    "recovery": (*_JUDGING, "asd/handler", "asd/supervisor"),
    "scale": ("asd/handler", "exporters/prometheus"),
    "groups": ("asd/diagnosis", "operators/ranks"),
    "fleet": ("asd/handler/decide", "asd/handler/model"),
    "exporter": ("exporters/prometheus", "exporters/run_files", "exporters/http"),
    "debugging": ("asd/dumps",),
    "debugging_cost": _DUMPS,
    "first_wrong": _DUMPS,
    "first_wrong_ranks": _DUMPS,
    "mutation": ("asd/rules", "asd/judge", "asd/diagnosis", "asd/handler"),
}
"""Each result with the folders whose code it is about."""

_WORDS = {
    "en": ("result", "commit", "command", "code it is about", "that code since"),
    "zh": ("结果", "提交", "命令", "相关代码", "此后该代码"),
}
_CELLS = {
    "en": ("changed", "the same", "{}, in `parts` of the file"),
    "zh": ("有改动", "未改动", "{} 条，见文件中的 `parts`"),
}


class NoHistoryError(Exception):
    """Nothing knows here what has changed: no git, or too few commits."""


@cache
def is_older(name: str) -> bool:
    """Returns whether the code of a result has changed since its commit, in the work tree too.

    Raises:
        NoHistoryError: It can't be known.
    """
    commit = measured(name)["commit"]
    if commit.endswith(("-dirty", "+")):
        return True
    found = [_differs(each, CODE[name]) for each in commit.split()]
    return any(found)


def _differs(commit: str, places: tuple[str, ...]) -> bool:
    if _git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}") != 0:
        raise NoHistoryError(commit)
    return _git("diff", "--quiet", commit, "--", *places) != 0


def _git(*words: str) -> int:
    """The exit code of git in the checkout."""
    try:
        return subprocess.run(("git", *words), cwd=RESULTS.parents[1], capture_output=True, check=False).returncode
    except OSError:
        return -1


def mark(name: str) -> str:
    """A star behind a figure that is older than the code it is about."""
    return " *" if is_older(name) else ""


def ages(language: str = "en") -> str:
    """Each result with its commit, its command and whether it is older than its code."""
    changed, same, several = _CELLS[language]
    rows = []
    for path in sorted(RESULTS.glob("*.json")):
        about, places = measured(path.stem), ", ".join(f"`{place}`" for place in CODE[path.stem])
        state = changed if is_older(path.stem) else same
        command = several.format(len(about["parts"])) if "parts" in about else f"`{about['command']}`"
        rows.append((path.stem, about["commit"].replace(" ", ", "), command, places, state))
    return table(_WORDS[language], rows)
