"""What has to hold for a healthy training and for one with a fault; each function returns what is wrong."""

from collections.abc import Sequence

from matrix import REGROUPED, Cell
from trainings import STEPS, State, Training
from watched import Plain, Watched, differing, is_same

from asd import Event, Level


def judge_healthy(cell: Cell, plain: Plain, healthy: Watched, configuration: str) -> list[str]:
    """What is wrong with a training that had no fault."""
    wrong = []
    cell["equal"] = plain.like(healthy)
    # In half precision MindSpore leaves casts in a compiled graph or not, by what code is around them.
    regroups = configuration != "document" and cell["mode"] == "graph" and cell["precision"] != "float32"
    if not cell["equal"] and regroups and plain.repeatable and plain.moves():
        cell |= {"equal": None, "note": REGROUPED}
        if not healthy.says("in other groups"):
            wrong.append("nothing says that gradients may be added in other groups")
    elif not cell["equal"] and plain.repeatable:
        one = plain.all[0]
        differ = differing(one.after, healthy.after)
        steps = [i + 1 for i, pair in enumerate(zip(one.losses, healthy.losses, strict=False)) if pair[0] != pair[1]]
        since = f"losses from step {steps[0]} on" if steps else "losses are equal"
        wrong.append(f"not equal: {len(differ)} of {len(one.after)} tensors, such as {differ[:1]}; {since}")
    elif not cell["equal"]:
        cell |= {"equal": None, "note": "plain MindSpore does not repeat itself"}
    first, second = healthy.of(Level.ERROR), healthy.of(Level.WARNING)
    cell |= {"first_level": len(first), "second_level": len(second)}
    status = healthy.status
    cell["refused"], cell["checks"] = sum(each.refused for each in status), sum(each.checks for each in status)
    cell["places"] = sum(len(each.checkpoints) for each in status)
    if first:
        wrong.append(f"{len(first)} false first-level alarms, such as {_of_event(first[0])}")
    if cell["refused"]:
        wrong.append(f"{cell['refused']} healthy updates refused")
    if len(healthy.losses) != STEPS or any(each.steps != STEPS // healthy.parts for each in status):
        wrong.append(f"{[each.steps for each in status]} steps judged, {len(healthy.losses)} made of {STEPS}")
    return wrong + judge_coverage(cell, healthy, configuration)


def judge_coverage(cell: Cell, healthy: Watched, configuration: str) -> list[str]:
    """Whether what does nothing says so."""
    wrong = []
    cell["problems"] = sorted(set(healthy.problems))
    names = [name for each in healthy.status for name in each.checkpoints]
    # The document's rule looks at gradients at norms and embeddings; all others at those of weights too.
    due = healthy.norms if configuration == "document" else healthy.norms + healthy.weights
    seen = sum(not name.endswith(".twice") and ".checksum" not in name for name in names)
    if due and healthy.says("nothing to check"):
        wrong.append(f"it says that there is nothing to check, where {due} gradients are")
    elif (not names or seen < due) and not healthy.says("nothing to check", "nothing was checked", "not checked"):
        wrong.append(f"{seen} of {due} gradients are checked, and nothing says so")
    if any("not judged" in each for each in healthy.problems):
        wrong.append(f"a step was not judged: {healthy.problems[0]}")
    again = any(name.endswith(".twice") or ".checksum" in name for name in names)
    if configuration == "everything" and not again and not healthy.says("product", "checksum"):
        wrong.append("no result is computed again, and nothing says so")
    return wrong


def judge_struck(cell: Cell, plain: Plain, healthy: Watched, struck: Watched, configuration: str) -> list[str]:
    """What is wrong with a training that had a fault in step `BAD`."""
    cell["fault"], cell["healed"] = str(struck.fault), None
    if not cell["places"]:
        cell["found"] = None  # nothing is checked, and that was said or is wrong already
        return []
    if not struck.fault.strike.told:
        return ["the fault never struck"]
    first = struck.of(Level.ERROR, 0)
    wrong = [f"alarm in step {each.step}: {_of_event(each)}" for each in first if each.step != struck.bad][:1]
    wrong += [f"the other monitor is blamed: {_of_event(each)}" for each in struck.of(Level.ERROR)[len(first) :]][:1]
    cell["found"] = any(each.step == struck.bad for each in first)
    if not cell["found"] and any(is_same(each, struck) for each in plain.all):
        cell["found"] = "harmless"
        return wrong
    if not cell["found"]:
        return wrong + _judge_warned(cell, struck)
    if configuration == "everything":
        clean = plain.all if cell["refused"] else [healthy, *plain.all]  # a spoiled training is nothing to end like
        return wrong + _judge_healed(cell, clean, struck)
    return wrong + (_judge_gone_on(cell, struck) if configuration == "adaptive" else _judge_stopped(struck))


def _judge_warned(cell: Cell, struck: Watched) -> list[str]:
    """What may be a warning: an overflow that a dynamic scaler skips, and an element that clipping has made small.

    Behind the clipping all others are small instead: that is worth a second look, where one is on.
    """
    warnings = [each for each in struck.of(Level.WARNING, 0) if each.step == struck.bad]
    hidden = cell["kind"] == "clipping" and struck.fault.target == "weight gradient"
    if hidden and not (warnings and cell["configuration"] == "everything"):
        cell["found"] = "warned" if warnings else "hidden"
        return []
    if cell["precision"] == "dynamic" and any("overflow" in each.reason for each in warnings):
        cell["found"] = "overflow"
        return _judge_refusal(struck.before, struck.behind)
    if cell["precision"] == "dynamic" and not struck.norms:  # all its checks are at the optimizer
        cell["found"] = "skipped"
        return _judge_refusal(struck.before, struck.behind)
    return [f"not found in its step, with {len(warnings)} warnings"]


def _judge_stopped(struck: Watched) -> list[str]:
    if struck.ended_by is None or struck.ended_by.event.step != struck.bad:
        return ["the training was not ended in the fault's step"]
    return _judge_refusal(struck.before, struck.after)


def _judge_healed(cell: Cell, clean: Sequence[Training], struck: Watched) -> list[str]:
    cell["healed"] = any(is_same(each, struck) for each in clean) or is_same(
        Training(cell["kind"], cell["precision"], fault=struck.fault.idle()), struck
    )
    if cell["healed"]:
        return []
    if struck.says("re-run", "second look", "asd_confirm"):
        cell["healed"] = "no, and it is said"
        return _judge_gone_on(cell, struck)
    return ["not healed, and nothing says why", *_judge_gone_on(cell, struck)]


def _judge_gone_on(cell: Cell, struck: Watched) -> list[str]:
    """Whether one update was refused, and no other."""
    wrong = [f"{len(struck.losses)} steps of {STEPS}"] if len(struck.losses) != STEPS else []
    refused = [each.refused for each in struck.status]
    expected = [1, 0][: len(refused)]
    if refused != expected and not (cell["precision"] == "dynamic" and not any(refused)):  # the scaler skips overflows
        wrong.append(f"{refused} updates refused where one was bad")
    return wrong + _judge_refusal(struck.before, struck.behind)


def _judge_refusal(before: State, behind: State) -> list[str]:
    """Whether the fault's step left everything as it was that the first monitor judges."""
    mine = {name: value for name, value in before.items() if name[0] in "01"}
    differ = differing(mine, behind, statistics=False)
    return [f"the update was not refused: {len(differ)} tensors differ, such as {differ[:1]}"] if differ else []


def _of_event(event: Event) -> str:
    limits = ", ".join(f"{each:.3g}" for each in event.limits)
    return f"step {event.step}, {event.checkpoint}: {event.reason} ({event.value:.3g}, limits {limits})"
