"""What detection finds, and how often it is wrong."""

from __future__ import annotations

from tables.cells import count, met, of, percent, ratio, result, table


def five(language: str = "en") -> str:
    """The figures that README begins with, each with the command that made it."""
    steps, single = result("overhead")["steps"], result("held_out")["all"]["own_step"]
    quiet, recovery = result("false_alarms")["steady"], result("recovery")["recovery"]["from_the_last_checkpoint"]
    values = [
        (ratio(steps["large, graph, full"]["ratio"]), "python benchmarks/overhead.py"),
        (ratio(steps["large, graph, document"]["ratio"]), "python benchmarks/overhead.py"),
        (of(single), "python -m benchmarks.held_out"),
        (f"{count(quiet['first_level'])} / {count(quiet['checks'])}", "python -m benchmarks.false_alarms"),
        (f"{recovery['decision_s']['median']:.2f} s", "python benchmarks/recovery.py --jobs 3"),
    ]
    words = {
        "en": (
            ("what was measured", "figure", "command"),
            "step time with detection, relative to that without (quartiles)",
            "the same with `ASD_PROTECTION=document`",
            "harmful single faults found in their own step, in trainings that nothing was tuned on",
            "first-level alarms / checks, in healthy trainings of 30 kinds",
            "from the alarm to the decision to isolate, the step made again included",
        ),
        "zh": (
            ("测量内容", "数值", "命令"),
            "默认配置下的单步耗时与关闭检测时之比（括号内为四分位数）",
            "同上，`ASD_PROTECTION=document`",
            "有害的单步故障中当步检出的个数（未用于调参的训练）",
            "30 类正常训练中的一级误报数 / 检查次数",
            "从告警到做出隔离决定的时间，含重放该步",
        ),
    }[language]
    rows = [(what, value, f"`{command}`") for what, (value, command) in zip(words[1:], values, strict=True)]
    if language == "zh":
        rows = [(what, value.replace(" of ", " / ").replace(" to ", "~"), command) for what, value, command in rows]
    return table(words[0], rows)


def healthy() -> str:
    """Alarms of healthy trainings."""
    rows = []
    for key, words in (
        ("steady", "30 kinds of training, as they go"),
        ("abrupt", "data become something else at once"),
    ):
        found = result("false_alarms")[key]
        first, second = found["first_level_per_million"], found["second_level_per_million"]
        rows.append(
            (
                words,
                count(found["trainings"]),
                count(found["with_a_first_level_alarm"]),
                count(found["checks"]),
                f"{first[0]:.1f} ({first[1]:.1f})",
                f"{second[0]:.0f} ({second[1]:.0f})",
            )
        )
    head = (
        "trainings", "runs", "with a first-level alarm", "checks", "first-level a million", "second-level a million",
    )  # fmt: skip
    return table(head, rows)


def held_out() -> str:
    """What the default finds in trainings that nothing was tuned on, beside the aims."""
    found = result("held_out")["all"]
    aims = {
        "own_step": ("harmful single faults found in their own step", 0.8),
        "within_20": ("the same within 20 steps", 0.97),
        "before_second_update": ("the same, refused or reported before a second update", 0.9),
        "lasting": ("harmful lasting faults found while they last", 0.99),
    }
    rows = []
    for name, (what, aim) in aims.items():
        share = found[name]
        low, high = (percent(bound) for bound in share["wilson"])
        shown = met("") if share["wilson"][1] < aim else "not shown"
        rows.append(
            (what, percent(aim), of(share), f"{low} to {high}", met("yes") if share["wilson"][0] >= aim else shown)
        )
    upper = found["per_million"][1]
    alarms = f"{found['alarms']} in {count(found['checks'])} checks"
    what = "first-level false alarms in healthy trainings, a million checks"
    rows.append((what, "1", alarms, f"at most {count(upper)}", met("yes") if upper <= 1 else "not shown"))
    return table(("the default, as it runs", "aimed", "measured", "95 % interval", "met"), rows)


def held_out_places() -> str:
    """The same harmful faults by where they strike and how long they last."""
    rows = []
    for place in ("product", "dx", "dw", "activation", "gradient", "weight", "moment"):
        for lasting, words in ((False, "one step"), (True, "lasting")):
            here = [row for row in result("held_out")["rows"] if row["place"] == place and row["lasting"] == lasting]
            if here:
                found = [row["while" if lasting else "own"] for row in here]
                missed = sorted({row["kind"] for row, each in zip(here, found, strict=True) if not each})
                rows.append((place, words, f"{sum(found)} of {len(found)}", ", ".join(missed) or "-"))
    return table(("place", "lasts", "found", "missed"), rows)
