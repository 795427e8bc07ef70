"""What detection finds, and how often it is wrong."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from tables.cells import count, percent, result, table
from tables.cluster import decided
from tables.history import mark
from tables.ranks import MOST_TIME, in_all

sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks._wilson import per_million, wilson

WORDS = {
    "en": {
        "head": ("what was measured", "found, with 95 % interval", "aim", "command"),
        "graph": "one device {}",
        "ranks": "{} ranks {}",
        "pynative": "PyNative {}",
        "of": "{} of {} ({:.0f} to {:.0f} %)",
        "loss": "harmful one-call faults that raise the loss: update refused in the same step",
        "weights": "harmful one-call faults that change only weights: update refused in the same step",
        "lasting": "harmful permanent faults of one operator type: found within 200 steps (PyNative: 60)",
        "memory": "harmful bit flips in memory: found within 20 steps",
        "core": "a permanent fault of one core of 24, varying last bits: found within 60 steps",
        "link": "a link that delivers zeros or a stale part: refused in the same step",
        "alarms": "first-level false alarms, in healthy trainings or before a fault",
        "named": "{} of {} ({:.0f} to {:.0f} %; right device named in {})",
        "none": "healthy trainings: {} of {} checks (at most {} per million, {} steps)",
        "early": "before a fault: {} of {} trainings ({:.1f} to {:.1f} %)",
        "zero": "none in a million",
        "cost": "time of the added memory traffic, % of a step ([computed](docs/costs.md#what-it-costs-on-a-device) "
        "for a 910B: Llama-2 7B with weights of each type; experts: Qwen3-30B-A3B)",
        "graph alone": "compiled graph alone",
        "layouts": "{}: {}",
        "processor": "processor time of a step with detection, as a multiple of one without, on this CPU",
        "most": "at most {}",
        "times": "{:.2f} times",
        "decision": "from the alarm to the decision to isolate, replay included",
        "seconds": "{:.2f} to {:.2f} s in {} jobs",
        True: ": met",
        "ZeRO": ": met with ZeRO, **missed** in all other layouts",
        False: ": **missed**",
        None: ": too few to tell",
        "between": ", ",
        "apart": "; ",
        "with": ", with ranks {}",
    },
    "zh": {
        "head": ("测量内容", "发现比例（95 % 区间）", "目标", "命令"),
        "graph": "单设备 {}",
        "ranks": "{} 个 rank：{}",
        "pynative": "PyNative {}",
        "of": "{} / {}（{:.0f} 至 {:.0f} %）",
        "loss": "单次调用的有害故障（影响 loss）：在当步被拦截",
        "weights": "单次调用的有害故障（只影响权重）：在当步被拦截",
        "lasting": "某类算子每次调用都出错的有害故障：200 步内发现（PyNative 60 步）",
        "memory": "内存比特翻转的有害故障：20 步内发现",
        "core": "24 个核中有一个始终算错（末位会变化）：60 步内发现",
        "link": "链路送达零或上一步的数据：在当步被拦截",
        "alarms": "一级误报（正常训练，或注入故障之前）",
        "named": "{} / {}（{:.0f} 至 {:.0f} %；其中 {} 次指出正确设备）",
        "none": "正常训练：{1} 次检查中 {0} 次（每百万次不超过 {2} 次，{3} 步）",
        "early": "注入故障之前：{1} 次训练中 {0} 次（{2:.1f} 至 {3:.1f} %）",
        "zero": "百万次检查中为零",
        "cost": "全部检测读写数据的时间占一步时间的比例（[计算得出](docs/costs.md#what-it-costs-on-a-device)：910B "
        "上的 Llama-2 7B（按权重类型）与 Qwen3-30B-A3B）",
        "graph alone": "仅编译后的图",
        "layouts": "{}：{}",
        "processor": "本机 CPU 上开启检测的一步与不开启时的处理器时间之比",
        "most": "不超过 {}",
        "times": "{:.2f} 倍",
        "decision": "从告警到做出隔离决定的时间，含重放该步",
        "seconds": "{2} 个任务中 {0:.2f} 至 {1:.2f} s",
        True: "：达标",
        "ZeRO": "：ZeRO 达标，其余切分方式**未达标**",
        False: "：**未达标**",
        None: "：样本太少，无法判断",
        "between": "，",
        "apart": "；",
        "with": "（多个 rank 时 {}）",
    },
}
_AIMS = {"loss": 0.75, "weights": 0.35, "lasting": 0.99, "memory": 0.6, "core": 0.99, "link": 0.95}
_OF_RANKS = {"memory": 0.95}
"""Shares to find: missed where fewer are found in a mode, met where the whole interval is above."""
_MILLION = 1_000_000
_MOST_BYTES = 0.03
_LLAMA = ("tensor", "sequence", "data", "ZeRO")
_AIM_OF = {
    "loss": "single, own step, where the loss suffers",
    "weights": "single, own step, where only weights do",
    "core": "core, within 60",
    "link": "link, own step, zeros and stale parts",
}
_GROUP_OF = {"lasting": ("lasting", "in_200"), "memory": ("memory", "in_20")}


def headline(language: str = "en") -> str:
    """The figures that README begins with: with their interval, their aim, and the command that made them."""
    words, found = WORDS[language], result("held_out")
    rows = []

    def add(name: str, texts: Sequence[str], aim: str, source: str, is_met: object) -> None:
        aim = aim + words[is_met] if aim else "-"
        rows.append(
            (
                words[name] + mark(source),
                words["between"].join(texts),
                aim,
                f"`{_COMMANDS[source]}{_MORE.get(name, '')}`",
            )
        )

    for name, aim in _AIMS.items():
        texts: list[str] = []
        states: list[bool | None] = []
        for mode, ranks in (("graph", 1), ("graph", 2), ("graph", 8), ("pynative", 1)):
            if (share := _share(found, name, mode, ranks)) is None:
                continue
            count_of, of, (low, high) = share
            named = _named(found, name, mode, ranks)
            text = words["of" if named is None else "named"].format(count_of, of, 100 * low, 100 * high, named)
            texts.append(words["ranks"].format(ranks, text) if ranks > 1 else words[mode].format(text))
            least = _OF_RANKS.get(name, aim) if ranks > 1 else aim
            states.append(False if count_of < least * of else True if low >= least else None)
        aims = percent(aim) + (words["with"].format(percent(_OF_RANKS[name])) if name in _OF_RANKS else "")
        add(name, texts, aims, "held_out", False if False in states else None if None in states else True)
    healthy, early = found["healthy"], found["alarms_too_early"]
    alarms, checks = healthy["alarms"], healthy["checks"]
    most = ceil(per_million(alarms, checks)[1])
    texts = [words["none"].format(count(alarms), count(checks), most, count(healthy["steps"]))]
    run = sum(group["run"] for group in found["groups"].values())
    texts.append(words["early"].format(early, run, *(100 * share for share in wilson(early, run))))
    add(
        "alarms",
        [words["apart"].join(texts)],
        words["zero"],
        "held_out",
        False if alarms or early else True if checks >= _MILLION else None,
    )
    shares = in_all()
    shares[words["graph alone"]] = {"experts": result("cost")["experts"]["full"]["percent"] / 100}
    texts = [
        words["layouts"].format(name, ", ".join(f"{layout} {percent(share, 1)}" for layout, share in some.items()))
        for name, some in shares.items()
    ]
    beyond = {layout for some in shares.values() for layout, share in some.items() if share > _MOST_BYTES}
    aim = words["most"].format(percent(_MOST_BYTES))
    add("cost", [words["apart"].join(texts)], aim, "cost", False if "ZeRO" in beyond else "ZeRO" if beyond else True)
    ratios = {name: row["processor"]["median"] for name, row in result("overhead")["steps"].items() if "graph" in name}
    texts = [f"{name.split(',')[0]} {words['times'].format(ratio)}" for name, ratio in ratios.items()]
    aims = [words["times"].format(MOST_TIME[name.split(",")[0]]) for name in ratios]
    is_met = all(ratio <= MOST_TIME[name.split(",")[0]] for name, ratio in ratios.items())
    add("processor", texts, words["most"].format(words["between"].join(aims)), "overhead", is_met)
    add("decision", [words["seconds"].format(*decided())], "", "recovery", None)
    return table(words["head"], rows)


_COMMANDS = {
    "held_out": "python -m benchmarks.held_out",
    "cost": "make cost",
    "overhead": "python benchmarks/overhead.py",
    "recovery": "python benchmarks/recovery.py --jobs 3",
}
_MORE = {
    "loss": " --kinds single",
    "weights": " --kinds single",
    "lasting": " --kinds lasting",
    "memory": " --kinds memory",
    "core": " --kinds core --noise 0.2",
    "link": " --kinds link --ranks 2",
}
"""Options of the benchmark's command for each row; with several ranks `--ranks`."""


def _share(found: Mapping[str, Any], name: str, mode: str, ranks: int) -> tuple[int, int, tuple[float, float]] | None:
    """How many were found, of how many, and the 95 % interval; None where none was run."""
    more = f", {ranks} ranks" * (ranks > 1)
    if name in _AIM_OF:
        aim = found["aims"].get(f"{mode} {_AIM_OF[name]}{more}")
        return aim and (aim["found"], aim["of"], aim["wilson"])
    kind, column = _GROUP_OF[name]
    group = found["groups"].get(f"{mode} {kind}{more}")
    return group and (group[column]["found"], group["run"], group[column]["wilson"])


def _named(found: Mapping[str, Any], name: str, mode: str, ranks: int) -> int | None:
    """Returns the number of faults whose device was named; None with a single device, where nothing shows it."""
    groups = [group for each, group in found["groups"].items() if each.startswith(f"{mode} {name}, {ranks} ranks")]
    if ranks == 1 or name not in {"core", "memory"} or not groups:
        return None
    return sum(group["named"] for group in groups)


def found_faults() -> str:
    """Of each mode and kind of fault what struck, harmed and was found, with Wilson's intervals."""
    rows = []
    for name, group in result("held_out")["groups"].items():
        shares = []
        for column in ("own", "in_20", "in_200"):
            low, high = group[column]["wilson"]
            share = f"{group[column]['found']} of {group['run']} ({percent(low)} to {percent(high)})"
            shares.append(share if group["run"] else "-")
        several = "ranks" in name and "link" not in name  # a bad link is no device's fault
        told = str(group.get("not_refused", "-")), f"{group['named']} of {group['run']}" if several else "-"
        name = name.replace("lasting", "permanent (`lasting`)")
        rows.append((name, f"{group['struck']} of {group['drawn']}", count(group["harmful"]), *shares, *told))
    head = (
        "mode, kind",
        "struck",
        "harmful",
        "own step, refused",
        "within 20 steps",
        "within 200 steps",
        "not refused",
        "right device named",
    )
    return table(head, rows)


def found_aims() -> str:
    """What of the same faults the table of kinds does not tell apart."""
    rows = []
    for name, aim in result("held_out")["aims"].items():
        low, high = aim["wilson"]
        rows.append((name, f"{aim['found']} of {aim['of']} ({percent(low)} to {percent(high)})"))
    return table(("of those run", "found"), rows)


def curve() -> str:
    """The share of the same faults of one call that each setting finds, with its cost on a device."""
    once = [row for row in result("held_out")["rows"] if row["kind"] == "single" and "own" in row]
    settings = sorted({row.get("settings", "") for row in once})
    keys = [{_key(row) for row in once if row.get("settings", "") == each} for each in settings]
    shared, cost, rows = set.intersection(*keys), result("cost"), []
    for each in settings:
        some = [row for row in once if row.get("settings", "") == each and _key(row) in shared]
        suffers = [row["own"] for row in some if row["loss"] is None or row["loss"] > 0.01]
        protection = "document" if "document" in each else "full"
        share = each.partition("confirm:")[2] or ("0" if "document" in each else "0.01")
        shares = [f"{layout} {cost[layout][protection]['percent']:.1f} %" for layout in _LLAMA]
        found = [f"{sum(every)} of {len(every)}" for every in (suffers, [row["own"] for row in some])]
        rows.append((f"`{each}`" if each else "as shipped", *found, ", ".join(shares), percent(float(share))))
    head = ("settings", "the loss suffers: own step", "all harmful", "bytes of a step", "steps re-run, at most")
    return table(head, rows)


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row.get("number"), row["training"], row["fault"], row.get("ranks", 1), row.get("noise", 0)
