"""What the debugger costs, and how often it names the right operator."""

from __future__ import annotations

from statistics import median

from tables.cells import count, met, result, table


def first_step(level: str) -> float:
    """Processor time of a first step with a dump of that level, relative to one without."""
    seconds = result("first_step")["seconds"]
    return median(seconds[level]) / median(seconds["bare"])


def first_steps_of_rounds() -> str:
    """The same of the rounds of `asd compare --rounds`."""
    found = sorted(first_step(level) for level in result("first_step")["seconds"] if level.startswith("inside:"))
    return f"{found[0]:.1f} to {found[-1]:.1f} times"


def debugging() -> str:
    """What the debugger costs."""
    rows = []
    modes = {"graph": "graph", "pynative": "PyNative"}
    for each in result("debugging_cost"):
        what = f"step with a dump, {modes[each['mode']]}, `{each['level']}`, {each['task']}, {each['entries']} entries"
        slower = each["ratio"]
        rows.append((what, f"{each['bound']:.1f} times", f"{slower:.2f} times", met(slower <= each["bound"])))
    first = result("first_step")
    bare = median(first["seconds"]["bare"])
    for level, bound in first["bounds"].items():
        found = sorted(seconds / bare for seconds in first["seconds"][level])
        _, is_round, inside = level.partition("inside:")
        where = f"a round of {f'`{inside}`' if inside else 'the network'}" if is_round else f"`{level}`"
        what = f"processor time of the first step, graph, {where}, a Llama of one layer"
        spread = f"{median(found):.1f} times ({found[0]:.1f} to {found[-1]:.1f})"
        rows.append((what, f"{bound:.1f} times", spread, met(median(found) <= bound)))
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
                f"`asd compare` of {each['gigabytes']:.1f} GB of tensors, {kind} differs",
                "200 MB",
                f"{each['seconds']:.1f} s, {each['megabytes']:.0f} MB",
                met(each["megabytes"] <= 200),
            )
        )
    found = result("first_wrong")["summary"]["tensors"]
    right = f"{found['right']} of {found['faults']}"
    rows.append(("first wrong operator named right", "99 %", right, met(found["right"] >= 0.99 * found["faults"])))
    return table(("part", "aimed", "measured", "met"), rows)


def first_wrong(language: str = "en") -> str:
    """How often the first wrong operator of a step in PyNative was named right."""
    return _first_wrong_table("first_wrong", language)


def first_wrong_in_graphs(language: str = "en") -> str:
    """How often the first wrong operator of a compiled step was named right."""
    return _first_wrong_table("first_wrong_graph", language)


def first_wrong_across(language: str = "en") -> str:
    """The same, held against a healthy run in PyNative."""
    return _first_wrong_table("first_wrong_across", language)


def first_wrong_ranks(language: str = "en") -> str:
    """The same of faults on one of two ranks, in PyNative."""
    return _first_wrong_table("first_wrong_ranks", language)


def _first_wrong_table(name: str, language: str) -> str:
    head = {
        "en": ("compared by", "faults", "right", "can't tell", "not seen", "wrong", "right, 95 % interval",
               "wrong, 95 % interval"),
        "zh": ("比对依据", "故障", "正确", "无法判断", "未见差异", "错误", "正确率的 95 % 区间", "错误率的 95 % 区间"),
    }[language]  # fmt: skip
    rows = []
    for way, found in result(name)["summary"].items():
        numbers = (str(found[name]) for name in ("faults", "right", "can't tell", "not seen", "wrong"))
        limits = (
            f"{100 * low:.1f} to {100 * high:.1f} %" for low, high in (found["right, of 1"], found["wrong, of 1"])
        )
        rows.append((way, *numbers, *limits))
    return table(head, rows)
