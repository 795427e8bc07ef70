"""What the debugger costs, and how often it names the right operator."""

from __future__ import annotations

from tables.cells import count, met, result, table

_AIMS = {
    ("L0", "statistics"): 1.5,
    ("L1", "statistics"): 1.5,
    ("mix", "statistics"): 2.0,
    ("L0", "md5"): 1.3,
    ("L1", "md5"): 2.0,
    ("mix", "md5"): 2.1,
    ("mix", "tensor"): 2.6,
}
"""Longest time of a step with each kind of dump, as a multiple of a step without."""


def debugging() -> str:
    """What the debugger costs."""
    rows = []
    found = {(each["level"], each["task"]): each for each in result("debugging_cost")["rows"]}
    for (level, task), aim in _AIMS.items():
        each = found.get((level, task))
        what = f"step with a dump, `{level}`, {task}" + (f", {each['entries']} entries" if each else "")
        measured = (f"{each['ratio']:.2f} times", met(each["ratio"] <= aim)) if each else ("-", "-")
        rows.append((what, f"{aim:.1f} times", *measured))
    for kind, each in result("debugging")["calls"].items():
        rows.append(
            (
                f"`asd compare` of {count(each['calls'])} calls, {kind}",
                "5 s, 150 MB",
                f"{each['seconds']:.1f} s, {each['megabytes']:.0f} MB",
                met(each["seconds"] <= 5 and each["megabytes"] <= 150),
            )
        )
    for kind, each in result("debugging")["tensors"].items():
        rows.append(
            (
                f"`asd compare` of {each['gigabytes']:.1f} GB of tensors in the page cache, {kind} differs",
                "200 MB",
                f"{each['seconds']:.1f} s, {each['megabytes']:.0f} MB",
                met(each["megabytes"] <= 200),
            )
        )
    named = result("first_wrong")["summary"]["tensors"]
    right = f"{named['right']} of {named['faults']}"
    rows.append(("first wrong operator named right", "99 %", right, met(named["right"] >= 0.99 * named["faults"])))
    return table(("part", "aimed", "measured", "met"), rows)


def first_wrong(language: str = "en") -> str:
    """How often the first wrong operator of a step was named right."""
    return _first_wrong_table("first_wrong", language)


def first_wrong_ranks(language: str = "en") -> str:
    """How often the first wrong operator and its rank were named right, of two ranks."""
    return _first_wrong_table("first_wrong_ranks", language)


def _first_wrong_table(name: str, language: str) -> str:
    head = {
        "en": (
            "compared by",
            "faults",
            "right",
            "can't tell",
            "not seen",
            "wrong",
            "right, 95 % interval",
            "wrong, 95 % interval",
        ),
        "zh": ("比对依据", "故障", "正确", "无法判断", "未见差异", "错误", "正确率的 95 % 区间", "错误率的 95 % 区间"),
    }[language]
    rows = []
    for way, found in result(name)["summary"].items():
        numbers = (str(found[name]) for name in ("faults", "right", "can't tell", "not seen", "wrong"))
        limits = (
            f"{100 * low:.1f} to {100 * high:.1f} %" for low, high in (found["right, of 1"], found["wrong, of 1"])
        )
        rows.append((way, *numbers, *limits))
    return table(head, rows)
