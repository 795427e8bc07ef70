"""What detection finds, and how often it is wrong."""

from __future__ import annotations

from tables.cells import count, result, table


def two(language: str = "en") -> str:
    """The figures that README begins with, each with the command that made it."""
    quiet, recovery = result("false_alarms")["steady"], result("recovery")["recovery"]["from_the_last_checkpoint"]
    values = [
        (f"{count(quiet['first_level'])} / {count(quiet['checks'])}", "python -m benchmarks.false_alarms"),
        (f"{recovery['decision_s']['median']:.2f} s", "python benchmarks/recovery.py --jobs 3"),
    ]
    words = {
        "en": (
            ("what was measured", "figure", "command"),
            "first-level alarms / checks, in healthy trainings of 30 kinds",
            "from the alarm to the decision to isolate, the step made again included",
        ),
        "zh": (
            ("测量内容", "数值", "命令"),
            "30 类正常训练中的一级误报数 / 检查次数",
            "从告警到做出隔离决定的时间，含重放该步",
        ),
    }[language]
    rows = [(what, value, f"`{command}`") for what, (value, command) in zip(words[1:], values, strict=True)]
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
        "trainings",
        "runs",
        "with a first-level alarm",
        "checks",
        "first-level a million",
        "second-level a million",
    )
    return table(head, rows)
