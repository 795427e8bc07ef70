"""What detection finds, and how often it is wrong."""

from __future__ import annotations

from tables.cells import count, percent, result, table

SHOWN = {
    "en": {
        ("single", "own"): "harmful faults of one call, refused in their own step",
        (
            "lasting",
            "in_200",
        ): "harmful faults of all calls of a kind of operator, found within 200 steps (PyNative: 60)",
        ("memory", "in_20"): "harmful bits lost in memory, found within 20 steps",
    },
    "zh": {
        ("single", "own"): "单次调用的有害故障，在当步被拦截",
        ("lasting", "in_200"): "某类算子每次调用都出错的有害故障，200 步内发现（PyNative 60 步）",
        ("memory", "in_20"): "内存位翻转的有害故障，20 步内发现",
    },
}
MODES = {"graph": {"en": "graph mode", "zh": "静态图"}, "pynative": {"en": "PyNative", "zh": "PyNative"}}


_LLAMA = ("tensor", "sequence", "data", "ZeRO")


def headline(language: str = "en") -> str:
    """The figures that README begins with, each with the command that made it."""
    found, recovery = result("held_out"), result("recovery")["recovery"]["from_the_last_checkpoint"]
    held_out = "python -m benchmarks.held_out --quick"
    rows = []
    for (kind, column), words in SHOWN[language].items():
        shares = [
            f"{names[language]} {group[column]['found']} / {group['run']}"
            for mode, names in MODES.items()
            if (group := found["groups"].get(f"{mode} {kind}")) and group["run"]
        ]
        rows.append((words, ", ".join(shares), f"`{held_out}`"))
    head, alarms, cost, decided = {
        "en": (
            ("what was measured", "figure", "command"),
            "first-level alarms / checks, in healthy trainings",
            "Llama-2 7B on a 910B, counted from its compiled step: bytes of all checks, of a step",
            "from the alarm to the decision to isolate, replay included",
        ),
        "zh": (
            ("测量内容", "数值", "命令"),
            "正常训练中的一级误报数 / 检查次数",
            "910B 上的 Llama-2 7B，由编译后的一步统计：全部检测读写的字节占一步的比例",
            "从告警到做出隔离决定的时间，含重放该步",
        ),
    }[language]
    quiet = found["healthy"]
    rows.append((alarms, f"{count(quiet['alarms'])} / {count(quiet['checks'])}", f"`{held_out}`"))
    shares = [f"{layout} {row['full']['percent']:.1f} %" for layout, row in result("cost").items() if layout in _LLAMA]
    rows.append((cost, ", ".join(shares), "`make cost`"))
    rows.append((decided, f"{recovery['decision_s']['median']:.2f} s", "`python benchmarks/recovery.py --jobs 3`"))
    return table(head, rows)


def found_faults() -> str:
    """Of each mode and kind of fault what struck, harmed and was found, with Wilson's intervals."""
    rows = []
    for name, group in result("held_out")["groups"].items():
        shares = []
        for column in ("own", "in_20", "in_200"):
            low, high = group[column]["wilson"]
            share = f"{group[column]['found']} of {group['run']} ({percent(low)} to {percent(high)})"
            shares.append(share if group["run"] else "-")
        told = str(group.get("not_refused", "-"))
        rows.append((name, f"{group['struck']} of {group['drawn']}", count(group["harmful"]), *shares, told))
    head = (
        "mode, kind",
        "struck",
        "harmful",
        "own step, refused",
        "within 20 steps",
        "within 200 steps",
        "not refused",
    )
    return table(head, rows)


def found_aims() -> str:
    """What of the same faults the table of kinds does not tell apart."""
    rows = []
    for name, aim in result("held_out")["aims"].items():
        low, high = aim["wilson"]
        rows.append((name, f"{aim['found']} of {aim['of']} ({percent(low)} to {percent(high)})"))
    return table(("of those run", "found"), rows)
