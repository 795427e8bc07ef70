"""The figures and tables of the documents: each is made from `benchmarks/results` and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"

BEST = "asd adaptive + second look + checksum, sampled"
DETECTORS = {
    "Ascend V2, mended (default)": "`ASD_PROTECTION=document`: the document's rule",
    "asd adaptive": "`ASD_RULE=adaptive` with its tiers and `ranks`",
    "asd adaptive + second look": "the same with `ASD_CONFIRM=0.01`",
    BEST: "the same with the tier `checksum`, sampled",
    "asd adaptive + checksum": "without `ASD_CONFIRM`, the checksum of every product in every step",
    "Ascend V3": "Ascend V3, as published",
    "Ascend V3, recalibrated to 2^9": "Ascend V3, with thresholds fitted to it",
    "ZClip": "ZClip",
}


@cache
def result(name: str) -> Any:
    """What a benchmark has left."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def count(number: float) -> str:
    """A whole number for reading."""
    return f"{number:,.0f}"


def of(share: dict[str, Any]) -> str:
    """How many of how many."""
    return f"{count(share['found'])} of {count(share['of'])}"


def percent(share: float, digits: int = 0) -> str:
    """A share for reading."""
    return f"{100 * share:.{digits}f} %"


def ratio(of_times: dict[str, Any]) -> str:
    """A ratio with its quartiles."""
    return f"{of_times['median']:.3f} ({of_times['q25']:.2f} to {of_times['q75']:.2f})"


def milliseconds(of_times: dict[str, Any]) -> str:
    """The median of some times, in seconds there."""
    return f"{1000 * of_times['median']:.0f} ms"


def met(is_met: object) -> str:
    """Whether a target is met."""
    return "yes" if is_met else "**no**"


def five(language: str = "en") -> str:
    """The figures that README begins with, each with the command that made it."""
    steps, detection = result("overhead")["steps"], result("detection")
    quiet, recovery = result("false_alarms")["steady"], result("recovery")["recovery"]["from_the_last_checkpoint"]
    document, best = (detection["detectors"][name] for name in ("Ascend V2, mended (default)", BEST))
    values = [
        (ratio(steps["large, graph, full"]["ratio"]), "python benchmarks/overhead.py"),
        (ratio(steps["large, graph, document"]["ratio"]), "python benchmarks/overhead.py"),
        (
            f"{of(document['single']['own_steps'])}; {of(best['single']['own_steps'])}",
            "python -m benchmarks.detection",
        ),
        (f"{count(quiet['first_level'])} / {count(quiet['checks'])}", "python -m benchmarks.false_alarms"),
        (f"{recovery['decision_s']['median']:.2f} s", "python benchmarks/recovery.py --jobs 3"),
    ]
    words = {
        "en": (
            ("what was measured", "figure", "command"),
            "step time with detection, relative to that without (quartiles)",
            "the same with `ASD_PROTECTION=document`",
            "harmful single faults found in their own step: `document`; all tiers, state read in each step",
            "first-level alarms / checks, in healthy trainings of 30 kinds",
            "from the alarm to the decision to isolate, the step made again included",
        ),
        "zh": (
            ("测量内容", "数值", "命令"),
            "默认配置下的单步耗时与关闭检测时之比（括号内为四分位数）",
            "同上，`ASD_PROTECTION=document`",
            "有害的单步故障中当步检出的个数：`document`；启用全部检测层且每步校验状态",
            "30 类正常训练中的一级误报数 / 检查次数",
            "从告警到做出隔离决定的时间，含重放该步",
        ),
    }[language]
    rows = [(what, value, f"`{command}`") for what, (value, command) in zip(words[1:], values, strict=True)]
    if language == "zh":
        rows = [(what, value.replace(" of ", " / ").replace(" to ", "~"), command) for what, value, command in rows]
    return table(words[0], rows)


def steps() -> str:
    """What a step costs with the detection of gradients, and with the tiers."""
    names = {
        "large, graph, full": ("large", "graph", "default"),
        "large, graph, document": ("large", "graph", "`ASD_PROTECTION=document`"),
        "large, graph, all": ("large", "graph", "linear layers as well"),
        "large, graph, tiers": ("large", "graph", "`ASD_RULE=adaptive`"),
        "large, pynative, full": ("large", "PyNative", "default"),
        "large, pynative, document": ("large", "PyNative", "`ASD_PROTECTION=document`"),
        "large, pynative, all": ("large", "PyNative", "linear layers as well"),
        "small, graph, full": ("small", "graph", "default"),
        "small, graph, document": ("small", "graph", "`ASD_PROTECTION=document`"),
        "small, graph, all": ("small", "graph", "linear layers as well"),
        "small, graph, tiers": ("small", "graph", "`ASD_RULE=adaptive`"),
        "small, pynative, full": ("small", "PyNative", "default"),
        "small, pynative, document": ("small", "PyNative", "`ASD_PROTECTION=document`"),
        "small, pynative, all": ("small", "PyNative", "linear layers as well"),
    }
    rows = []
    for name, words in names.items():
        found = result("overhead")["steps"][name]
        times, inside = milliseconds(found["step_seconds"]), percent(found["in_checks"]["median"], 2)
        rows.append((*words, count(found["checkpoints"]), times, ratio(found["ratio"]), inside))
    head = ("Llama", "mode", "checked", "places", "step", "relative to no detection (quartiles)", "time in checks")
    return table(head, rows)


def checksum_steps() -> str:
    """What a step costs with checksums, beside one with the document's rule."""
    modes = {"graph": "graph", "pynative": "PyNative"}
    rows = []
    for key, norms in (("cost", "products"), ("norms", "products and norms")):
        for found in result("checksum")[key]:
            due = f"each {found['every']}th" if found["every"] > 1 else "all, as in the first 32 steps"
            times = milliseconds(found["step_seconds"])
            rows.append((modes[found["mode"]], norms, due, times, ratio(found["ratio"])))
    return table(("mode", "what has a checksum", "how many a step", "step", "relative to `document` (quartiles)"), rows)


def parts() -> str:
    """What single parts of detection cost."""
    cost = result("overhead")
    shares = [entry["share_of_max"]["median"] for entry in cost["kernel"]]
    host = {rule: found["microseconds_a_checkpoint"]["median"] for rule, found in cost["host"].items()}
    rules = {found["rule"]: found["ns_per_update"] / 1000 for found in result("rules")["rules"]}
    chain = {
        (mode, entry["bytes"]): entry["microseconds_a_check"]["median"]
        for mode, entries in cost["chain"].items()
        for entry in entries
    }
    grown = cost["memory"]["pynative"]
    return table(
        ("part", "measured"),
        [
            *(
                (f"one check, {mode}, gradient of {size // 1024} KiB", f"{micro:.0f} µs")
                for (mode, size), micro in chain.items()
            ),
            *(
                (f"share of the large Llama's step, computed from that by bytes, {name}", percent(share, 2))
                for name, share in cost["computed_share"].items()
            ),
            ("C++ kernel, of the speed of NumPy's maximum", f"{percent(min(shares))} to {percent(max(shares))}"),
            *((f"host, a step and place, rule `{rule}`", f"{micro:.1f} µs") for rule, micro in host.items()),
            *((f"one update of the rule `{rule}`", f"{micro:.1f} µs") for rule, micro in rules.items()),
            ("memory from step 1,000 to 10,000, graph mode", f"{cost['memory']['graph']['growth'] / 1e6:.0f} MB"),
            (
                "the same in PyNative: with detection, without",
                f"{grown['megabytes grown with detection']:.0f} MB, "
                f"{grown['megabytes grown without detection']:.0f} MB",
            ),
        ],
    )


def cost_aims() -> str:
    """What detection was to cost and what it does."""
    steps, sums = result("overhead")["steps"], result("checksum")
    times = {(found["mode"], key): found["ratio"] for key in sums for found in sums[key] if found["every"] > 1}
    host = result("overhead")["host"]["adaptive"]["microseconds_a_checkpoint"]["median"]
    rows = [
        ("step, graph, default", 1.03, steps["large, graph, full"]["ratio"]),
        ("step, PyNative, default", 1.03, steps["large, pynative, full"]["ratio"]),
        ("step of the small Llama, graph, default", 1.10, steps["small, graph, full"]["ratio"]),
        ("step of the small Llama, PyNative, default", 1.10, steps["small, pynative, full"]["ratio"]),
        ("step, graph, `document`", 1.01, steps["large, graph, document"]["ratio"]),
        ("step, graph, linear layers as well", 1.01, steps["large, graph, all"]["ratio"]),
        ("step, PyNative, `document`", 1.03, steps["large, pynative, document"]["ratio"]),
        ("step, PyNative, linear layers as well", 1.03, steps["large, pynative, all"]["ratio"]),
        ("step, graph, `ASD_RULE=adaptive`", 1.02, steps["large, graph, tiers"]["ratio"]),
        ("step, graph, sampled checksums", 1.03, times["graph", "cost"]),
        ("step, graph, sampled checksums, norms too", 1.03, times["graph", "norms"]),
        ("step, PyNative, sampled checksums", 1.03, times["pynative", "cost"]),
        ("step, PyNative, sampled checksums, norms too", 1.03, times["pynative", "norms"]),
    ]
    lines = [(what, f"{aimed:.2f}", ratio(times), met(times["median"] <= aimed)) for what, aimed, times in rows]
    lines.append(("host work a step and place, `adaptive`", "12 µs", f"{host:.1f} µs", met(host <= 12)))
    return table(("large Llama", "aimed", "measured (quartiles)", "met"), lines)


def detectors() -> str:
    """What each detector finds, and how often it cries wolf."""
    rows = []
    for name, words in DETECTORS.items():
        found = result("detection")["detectors"][name]
        rate, bound = found["false_alarms"]["first_later"]
        rows.append(
            (
                words,
                of(found["single"]["own_steps"]),
                of(found["persistent"]["own_steps"]),
                percent(found["all_changes"]["share"]),
                f"{rate:.1f} ({bound:.1f})",
            )
        )
    head = ("detector", "harmful, of one step", "harmful, lasting", "all changes", "first-level false alarms a million")
    return table(head, rows)


def targets() -> str:
    """What detection was to reach, and whether it did."""
    rows = [
        (each["name"], each["wanted"].replace(">=", "≥").replace("<=", "≤"), each["measured"], met(each["met"]))
        for each in result("detection")["targets"]
    ]
    return table(("evaluation", "aimed", "measured", "met"), rows)


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


def _first_step(level: str) -> float:
    seconds = result("first_step")["seconds"]
    return median(seconds[level]) / median(seconds["bare"])


def _first_steps_of_rounds() -> str:
    found = sorted(_first_step(level) for level in result("first_step")["seconds"] if level.startswith("inside:"))
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
    wrong = len(result("first_wrong")["wrong"])
    for words, what in (("golden", "beside a healthy run"), ("alone", "alone")):
        rows.append((f"first wrong operator named right, {what}", "99 %", _first_wrong(words), met(not wrong)))
    return table(("part", "aimed", "measured", "met"), rows)


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


def publishing() -> str:
    """What it costs to tell others."""
    found = result("exporter")
    event, scrape, flood = found["event"], found["scrape"], found["flood"]
    own = scrape["milliseconds, text, prometheus_client's own metrics"]["median"]
    return table(
        ("part", "measured"),
        [
            ("an event into the log", f"{event['microseconds of a event']['median']:.0f} µs"),
            ("a first-level event, synced to disk", f"{event['microseconds of a durable event']['median']:.0f} µs"),
            ("for comparison: a plain append and fsync", f"{event['microseconds of a plain fsync']['median']:.0f} µs"),
            (
                f"a scrape of {count(scrape['series']['text, after 100 events'])} series, after 100 events",
                f"{scrape['milliseconds, text, after 100 events']['median']:.0f} ms",
            ),
            (
                "the same after a million events",
                f"{scrape['milliseconds, text, after 1000000 events']['median']:.0f} ms",
            ),
            ("for comparison: as many series of prometheus_client's own", f"{own:.0f} ms"),
            ("series of a node with 8 ranks, by default", count(scrape["series"]["by default"])),
            (
                f"events counted by the agent, of {count(flood['events written'])} written "
                f"at {count(flood['events a second'])} a second",
                count(flood["events counted"]),
            ),
            (
                "memory of the agent, after 100,000 and after a million events",
                f"{found['memory']['megabytes at a tenth']:.0f} MB, {found['memory']['megabytes at the end']:.0f} MB",
            ),
        ],
    )


def many_files() -> str:
    """How readers of a node's files scale, in processor time."""
    found = result("scale_files")
    rows = []
    for each in found["events"]["rows"]:
        name = f"`asd events`, {each['log_mib']:.0f} MiB of logs, {each['form']}"
        rows.append((name, each["package"], _used(each)))
    for each in found["logs"]["rows"]:
        catching_up, idle = each["catching_up"], each["idle_share_of_a_core"]
        name = f"the agent, {count(each['logs'])} logs of 50 events each"
        rows.append((name, each["package"], f"{catching_up:.1f} s, then {idle:.2%} of a core while nothing is written"))
    for each in found["scrape"]["rows"]:
        name = f"a scrape of {each['ranks']} ranks with {each['checkpoints']} checkpoints, all of them"
        rows.append((name, each["package"], f"{each['processor_seconds']['median']:.2f} s"))
    return table(("part", "version", "processor time"), rows)


def _used(row: dict[str, Any]) -> str:
    return f"{row['processor_seconds']:.1f} s, {row['most_memory_mib']:.0f} MiB"


def layouts() -> str:
    """Faults in jobs of real ranks that hold different parts."""
    found = result("layouts")
    total = found["summary"]

    def share(name: str) -> str:
        low, high = total[name]["interval"]
        return f"{total[name]['count']} of {total['faults']} ({100 * low:.1f} to {100 * high:.1f} %)"

    names = {"tensor": "tensor 2 x data 2", "pipeline": "2 stages x data 2", "optimizer": "data 4, divided optimizer"}
    rows = [
        (
            f"{names[row['layout']]}, {row['mode']}",
            *(f"{row[name]} of {row['faults']}" for name in ("named", "refused", "same")),
            f"{row['events_in_healthy_steps']} in {row['healthy_steps']}",
        )
        for row in found["rows"]
    ]
    healthy = total["healthy"]
    last = ("all", share("named"), share("refused"), share("same"), f"{healthy['events']} in {healthy['steps']}")
    head = ("ranks", "the right rank named", "all refused", "the same bits", "events in steps without a fault")
    return table(head, [*rows, last])


def groups() -> str:
    """What ranks exchange in jobs of tensor parallel 8 by 16 stages, by how many replicas there are."""
    found = result("groups")["groups"]
    rows = [
        (
            count(row["ranks"]), f"{row['step_bytes'] / 1024:.0f} KiB, {row['step_ms']:.0f} ms",
            f"{row['hash_bytes'] / 1024:.0f} KiB, {row['hash_ms']:.1f} ms",
            f"{row['refused_bytes'] / 1024:.0f} KiB, {row['refused_ms']:.0f} ms",
        )
        for row in found["rows"]
    ]  # fmt: skip
    powers = found["exponents"]
    last = ("grows with the ranks to the power of",
            f"{powers['usual_step_bytes']:.2f} in bytes, {powers['usual_step_ms']:.2f} in time", "",
            f"{powers['refused_ms']:.2f} in time")  # fmt: skip
    return table(("ranks", "each step", "weights, each 50 steps", "a refused step"), [*rows, last])


def devices() -> str:
    """How soon an intermittent device is out, by the size of the job and how often the device is wrong."""
    rows = []
    for kind in result("devices")["kinds"]:
        low, high = kind["interval"]
        rows.append((
            kind["ranks"], f"{100 * kind['chance']:g} %", kind["jobs"], f"{kind['wrong'][0]} to {kind['wrong'][-1]}",
            f"{kind['isolated_within']['jobs']} ({100 * low:.0f} to {100 * high:.0f} %)",
            ", ".join(map(str, kind["wrong_results_until_isolated"])), f"{kind['loss_off']:.2g}",
            kind["another_isolated"],
        ))  # fmt: skip
    head = (
        "ranks",
        "a product is wrong",
        "jobs",
        "wrong results in a job",
        "isolated",
        "after so many wrong results",
        "loss off by at most",
        "another isolated",
    )
    return table(head, [tuple(map(str, row)) for row in rows])


def fleet() -> str:
    """What both policies make of healthy and of bad devices."""
    found = result("fleet")

    def by(name: str, rate: str) -> dict[float, dict[str, dict[str, Any]]]:
        rows: dict[float, dict[str, dict[str, Any]]] = {}
        for row in found[name]:
            rows.setdefault(row[rate], {})[row["policy"]] = row
        return rows

    def accused(row: dict[str, Any]) -> str:
        low, high = row["interval"]
        return f"{row['in_10000_device_days']:.2f} ({low:.2f} to {high:.2f}) in 10,000 device-days"

    def caught(row: dict[str, Any]) -> str:
        if not row["taken_out_within_a_year"]:
            return f"0 of {row['devices']}"
        days, alarms = row["median_days"], row["median_alarms"]
        return f"{row['taken_out_within_a_year']} of {row['devices']}, after {days:.1f} days and {alarms:g} alarms"

    rows = [
        (f"healthy, {rate:g} alarms a year", *(accused(row[rule]) for rule in ("suspicion", "strikes")))
        for rate, row in by("healthy", "alarms_a_year").items()
    ]
    rows += [
        (f"bad, {rate:g} alarms a month", *(caught(row[rule]) for rule in ("suspicion", "strikes")))
        for rate, row in by("bad", "alarms_a_month").items()
    ]
    return table(("device", "`--policy suspicion`", "`--policy strikes`"), rows)


def acting() -> str:
    """How fast and how rightly it is acted."""
    found, replay, scale = result("recovery"), result("replay"), result("scale")
    jobs = list(found["recovery"].values())
    total = sum(each["jobs"] for each in jobs)
    again = [
        each["one_replay"]["replay_in_steps"]["median"] for each in replay.values() if "one_replay" in dict_of(each)
    ]
    remember = [each["each_step"]["remember_share"] for each in replay.values() if "each_step" in dict_of(each)]
    blamed, handler, pulled = found["attribution"], scale["handler"], scale["pulling"]
    decided = jobs[0]["decision_s"]
    return table(
        ("part", "measured"),
        [
            (
                "from the alarm to the decision to isolate, replay included",
                f"{decided['median']:.2f} s ({decided['q1']:.2f} to {decided['q3']:.2f})",
            ),
            ("jobs in which the right device was left out", f"{sum(each['right_device'] for each in jobs)} of {total}"),
            (
                "jobs that ended with the weights of an undisturbed training, bit for bit",
                f"{sum(each['weights_as_undisturbed'] for each in jobs)} of {total}",
            ),
            (
                "jobs that lost no more than the steps since the last good checkpoint",
                f"{sum(each['no_more_lost_than_since_the_checkpoint'] for each in jobs)} of {total}",
            ),
            ("a step made again, in steps", f"{min(again):.1f} to {max(again):.1f}"),
            (
                "`ASD_REPLAY=1` while no step is made again, share of a step",
                f"{percent(min(remember), 2)} to {percent(max(remember), 1)}",
            ),
            (
                f"random faults over {blamed['ranks']} ranks, the right rank named",
                f"{blamed['right']} of {blamed['faults']}",
            ),
            (
                "ranks accused in the steps between",
                f"{blamed['accused_between']} in {blamed['steps_between']} steps",
            ),
            (
                f"events the handler takes in, {count(handler['devices'])} devices, of "
                f"{count(handler['asked_rate'])} a second offered",
                f"{count(handler['rate'])} a second",
            ),
            (
                f"{count(pulled['events'])} events pulled from {count(pulled['agents'])} agents, of "
                f"{count(pulled['asked_rate'])} a second offered",
                f"{count(pulled['rate'])} a second, memory {pulled['memory_growth_in_second_half_mib']:+.1f} MiB in "
                "the second half",
            ),
            (
                "from the time of a pulled event to its decision",
                f"{pulled['median_seconds']:.2f} s, 99 % within {pulled['p99_seconds']:.2f} s, where 1 s is aimed at; "
                f"{percent(pulled['processor_share'])} of a core, beside others of which "
                f"{pulled['load_before']:.0f} ran or waited",
            ),
            (
                "memory of the handler, growth in the second half of it",
                f"{handler['memory_growth_in_second_half_mib']:.1f} MiB",
            ),
        ],
    )


def dict_of(value: Any) -> dict[str, Any]:
    """`value`, or an empty dict in place of what is none."""
    return value if isinstance(value, dict) else {}


def _quick() -> tuple[dict[str, Any], dict[str, Any]]:
    found = result("detection_quick")["detectors"][BEST]
    return found["single"]["own_steps"], found["persistent"]["own_steps"]


def _default_single(language: str = "en") -> str:
    found = of(result("detection")["detectors"]["Ascend V2, mended (default)"]["single"]["own_steps"])
    return found.replace(" of ", " / ") if language == "zh" else found


def _processor(language: str = "en") -> str:
    where = result("overhead")["where"]
    return (
        f"{where['processor']}({where['cores']} 核)"
        if language == "zh"
        else f"{where['cores']} cores of an {where['processor']}"
    )


def _first_wrong(words: str) -> str:
    """How often the first wrong operator was named right, with a healthy run beside it (`golden`) or `alone`."""
    found = result("first_wrong")
    right = sum(number for name, number in found["counts"].items() if name.startswith(words))
    return f"{right} of {right + len(found['wrong'])}"


def ascend(language: str = "en") -> str:
    """What was compiled for Ascend, without detection and with it."""
    head, yes, same = {
        "en": (("network", "layout", "protection", "compiled", "collectives without → with", "checkpoints",
                "operators without → with", "seconds to compile, without → with"), "yes", "the same"),
        "zh": (("网络", "切分方式", "检测", "编译通过", "通信算子:无检测 → 有检测", "检测点",
                "算子数:无检测 → 有检测", "编译秒数:无检测 → 有检测"), "是", "相同"),
    }[language]  # fmt: skip
    cells, rows = result("ascend"), list[tuple[str, ...]]()
    for cell, found in cells.items():
        net, layout, protection = cell.split("/")
        without = cells[f"{net}/{layout}/none"]
        if protection == "none":
            continue
        kinds = sorted({*found["collectives"], *without["collectives"]})
        counts = [(kind, without["collectives"].get(kind, 0), found["collectives"].get(kind, 0)) for kind in kinds]
        listed = "; ".join(f"{kind} {a} → {b}" if a != b else f"{kind} {a}" for kind, a, b in counts) or same
        compiled = yes if found["compiled"] else f"**{found['error']}**"
        figures = ["-"] * 3  # of a version before, where they were others
        if "places" in found and "places" in without:
            figures = [str(found["places"]), *(f"{without[each]} → {found[each]}" for each in ("operators", "seconds"))]
        rows.append((net, layout, protection, compiled, listed, *figures))
    return table(head, rows)


def results_again() -> str:
    """Convolutions, lookups and softmaxes: false alarms, the smallest error that was found, and the cost when due."""
    rows = []
    for found in result("results_again"):
        errors = ", ".join(f"{part} {error:.2g}" for part, error in found["smallest_error_in_rms"].items())
        alarms = f"{count(found['false_alarms'])} of {count(found['elements'])}"
        score, cost = f"{found['largest_clean_score']:.2f}", f"{found['check_over_operator']:.2f}"
        rows.append((found["kind"], found["dtype"], alarms, score, errors, cost))
    return table(("what", "type", "false alarms in elements", "largest healthy score", "smallest error", "cost"), rows)


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


TABLES: dict[str, Callable[..., str]] = {
    made.__name__: made
    for made in (
        five, steps, checksum_steps, results_again, parts, cost_aims, detectors, targets, healthy, debugging,
        first_wrong_in_graphs, first_wrong_across, first_wrong_ranks,
        publishing, many_files, acting, layouts, groups, ascend, devices,
        fleet, held_out, held_out_places,
    )
}  # fmt: skip

FIGURES: dict[str, Callable[..., str]] = {
    "trainings": lambda: count(result("detection")["trainings"]),
    "faults": lambda: count(result("detection")["injections"] - result("detection")["no_ops_removed"]),
    "harmful": lambda: count(result("detection")["harmful"]),
    "clean_checks": lambda: count(result("detection")["clean_checks"]),
    "made_again": lambda: count(result("detection")["made_again_by_second_looks"]["steps"]),
    "clean_steps": lambda: count(result("detection")["made_again_by_second_looks"]["of"]),
    "second_level": lambda: (
        f"{result('detection')['detectors']['asd adaptive']['false_alarms']['second_later'][0]:.0f}"
    ),
    "clean_products": lambda: count(result("detection")["checksum_on_clean_products"]["products"]),
    "clean_products_wrong": lambda: count(result("detection")["checksum_on_clean_products"]["variance"]),
    "clean_norms": lambda: count(result("detection")["check_on_clean_norms"]["norms"]),
    "clean_norms_wrong": lambda: count(result("detection")["check_on_clean_norms"]["wrong_norms"]),
    "clean_means": lambda: count(result("detection")["checksum_on_clean_means"]["means"]),
    "clean_means_wrong": lambda: count(result("detection")["checksum_on_clean_means"]["wrong_means"]),
    "quick_single": lambda: of(_quick()[0]),
    "quick_lasting": lambda: of(_quick()[1]),
    "default_single": _default_single,
    "processor": _processor,
    "mindspore": lambda: result("overhead")["where"]["mindspore"],
    "first_step_l1": lambda: f"{result('debugging_cost')[2]['first_step_s']:.0f} s",
    "first_step_l1_bare": lambda: f"{result('debugging_cost')[2]['bare_first_step_s']:.0f} s",
    "first_step_l0": lambda: f"{result('debugging_cost')[0]['first_step_s']:.0f} s",
    "first_step_l0_bare": lambda: f"{result('debugging_cost')[0]['bare_first_step_s']:.0f} s",
    "first_step_mix": lambda: f"{_first_step('mix'):.1f} times",
    "first_step_rounds": lambda: _first_steps_of_rounds(),
    "golden_right": lambda: _first_wrong("golden"),
    "alone_right": lambda: _first_wrong("alone"),
}
