"""Trainings that are divided over ranks, run here or compiled for Ascend."""

from __future__ import annotations

from tables.cells import count, met, percent, result, table

MOST_TIME, _FIRST = {"small": 1.25, "six blocks": 1.10, "large": 1.05}, 2.0
"""Aims of the sum over all steps but the first, and of the first one."""


def groups() -> str:
    """What ranks exchange in jobs of tensor parallel 8 by 16 stages, by how many replicas there are."""
    found = result("groups")["groups"]
    rows = [
        (
            count(row["ranks"]),
            f"{row['hash_bytes'] / 1024:.0f} KiB, {row['hash_ms']:.1f} ms",
            f"{row['refused_bytes'] / 1024:.0f} KiB, {row['refused_ms']:.0f} ms",
        )
        for row in found["rows"]
    ]
    powers = found["exponents"]
    last = (
        "grows with the ranks to the power of",
        f"{powers['hash_bytes']:.2f} in bytes, {powers['hash_ms']:.2f} in time",
        f"{powers['refused_ms']:.2f} in time",
    )
    return table(("ranks", "weights, each 16 steps", "a refused step"), [*rows, last])


def ascend(language: str = "en") -> str:
    """What was compiled for Ascend, without detection and with it."""
    head, yes, same = {
        "en": (
            (
                "network",
                "layout",
                "protection",
                "compiled",
                "collectives without → with",
                "checkpoints",
                "operators without → with",
                "seconds to compile, without → with",
            ),
            "yes",
            "the same",
        ),
        "zh": (
            (
                "网络",
                "切分方式",
                "检测",
                "编译通过",
                "通信算子:无检测 → 有检测",
                "检测点",
                "算子数:无检测 → 有检测",
                "编译秒数:无检测 → 有检测",
            ),
            "是",
            "相同",
        ),
    }[language]
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


def cost(language: str = "en") -> str:
    """What the checks of a step cost on a device, counted from compiled graphs."""
    head = {
        "en": (
            "network and layout",
            "a step",
            "protection",
            "read and written",
            "of the step",
            "launches",
            "kept for the backward pass",
        ),
        "zh": ("网络与切分方式", "一步", "检测", "读写", "占一步", "下发次数", "为反向保留"),
    }[language]
    of = {"experts": "Qwen3-30B-A3B"}
    rows = [
        (
            f"{of.get(layout, 'Llama-2 7B')}, {layout}",
            f"{row['step_ms']:.0f} ms",
            protection,
            f"{row['megabytes']:,.0f} MB",
            f"{row['percent']:.1f} %",
            count(row["launches"]),
            f"{row['kept_megabytes']:,.0f} MB",
        )
        for layout, found in result("cost").items()
        for protection, row in found.items()
    ]
    return table(head, rows)


_OF_WEIGHTS = {
    "each weight and moment is read, in one step of 16": 12 / 16,
    "updates of a sixteenth of the weights are measured": 1.5,
    "norms of matrices": 0.25,
    "hashes of weights, where there are replicas, in one step of 16": 36 / 16,
    "casts of gradients, with weights in bfloat16": 6,
}
"""Bytes read and written for each weight and step that the compiled graphs lack."""
_OF_LLAMA = {"tensor": 6.74e9 / 8, "sequence": 6.74e9 / 8, "data": 6.74e9, "ZeRO": 6.74e9 / 8}
"""Weights of Llama-2 7B whose gradients a rank has, by layout."""
_OF_MEMORY = 0.0025
"""Share of a step that sums of memory may take, see `docs/detectors.md`."""


def in_all() -> dict[str, dict[str, float]]:
    """The share of a step that the default reads and writes in all, by type of the weights and by layout."""
    casts = _OF_WEIGHTS["casts of gradients, with weights in bfloat16"]
    lacking = sum(_OF_WEIGHTS.values()) - casts
    moved = {layout: 1e6 * result("cost")[layout]["full"]["megabytes"] for layout in _OF_LLAMA}
    return {
        name: {each: _share(each, moved[each] + size * number) + _OF_MEMORY for each, number in _OF_LLAMA.items()}
        for name, size in {"float32": lacking, "bfloat16": lacking + casts}.items()
    }


def _share(layout: str, moved: float) -> float:
    return moved / 1.6e12 / (result("cost")[layout]["full"]["step_ms"] / 1000)


def weights() -> str:
    """Returns the traffic that the compiled graphs of Llama-2 7B lack, computed from its weights."""
    rows = [
        (name, f"{size:g}", *(percent(_share(each, size * number), 2) for each, number in _OF_LLAMA.items()))
        for name, size in _OF_WEIGHTS.items()
    ]
    rows.append(("sums of memory, 16 bytes for each word of a turn", "-", *[percent(_OF_MEMORY, 2)] * len(_OF_LLAMA)))
    for name, shares in in_all().items():
        shown = (percent(each, 1) for each in shares.values())
        casts = " (no casts)" if name == "float32" else ""
        rows.append((f"the default with weights in {name}: all of these{casts} and the graph", "-", *shown))
    for name, size in {"float32": 4, "bfloat16": 2}.items():
        copies = (f"{size * number / 16 / 1e6:,.0f} MB" for number in _OF_LLAMA.values())
        rows.append((f"memory for copies of a sixteenth of the weights, in {name}", "-", *copies))
    return table(("computed", "bytes per weight and step", *_OF_LLAMA), rows)


def compiling() -> str:
    """Seconds to compile with the default over those without detection."""
    kinds = {"blocks": "two small blocks", "norm_last": "two small blocks", "convolutions": "convolutions"}
    found: dict[str, list[tuple[float, float]]] = {}
    cells = result("ascend")
    for name, each in cells.items():
        net, layout, protection = name.split("/")
        if protection == "full":
            times = cells[f"{net}/{layout}/none"]["seconds"], each["seconds"]
            found.setdefault(kinds.get(net, "networks of mindformers"), []).append(times)
    rows = []
    for net, times in found.items():
        aim = 1.3 if "mindformers" in net else 2.5
        ratios = [after / before for before, after in times]
        spans = (_span([before for before, _ in times]), _span([after for _, after in times]), _span(ratios))
        rows.append((net, str(len(times)), *spans, f"{aim}", str(sum(each <= aim for each in ratios))))
    return table(("networks", "layouts", "seconds without", "seconds with", "ratio", "aim", "layouts within it"), rows)


def _span(some: list[float]) -> str:
    low, high = f"{min(some):.1f}", f"{max(some):.1f}"
    return low if low == high else f"{low} to {high}"


def overhead() -> str:
    """What a step takes with detection, of what it takes without, measured on a CPU."""
    rows = []
    for name, row in result("overhead")["steps"].items():
        most, first = MOST_TIME[name.partition(",")[0]], row["first_step"]
        cells = ["-"] * 3  # of a version before
        if "sum" in row:
            longest = row["longest_step"]
            cells = [f"{row['sum']['ratio']:.2f}", str(row["sum"]["steps"])]
            cells += [f"{longest['with']:.1f} ({longest['without']:.1f})"]
        total = row["sum"]["ratio"] if "sum" in row else row["processor"]["median"]
        spreads = (_spread(row["ratio"]), _spread(row["processor"]))
        rows.append((name, *spreads, *cells, f"{first:.1f}", f"{most:.2f}", met(total <= most and first <= _FIRST)))
    head = ("network, mode", "time of a step", "processor time", "sum", "steps", "longest step", "first step")
    return table((*head, "aim of the sum", "met"), rows)


def known_answers() -> str:
    """What a turn of the known-answer tests costs on a device, of three steps of Llama-2 7B on eight ranks."""
    rows = []
    for name, row in result("overhead")["probe"].items():
        seconds = row["bytes"] / 1.6e12 + row["operations"] / 141e12 * (4 if name == "float32" else 1)
        seconds += 10e-6 * row["launches"] + 40e-6 * (row["uploads"] + row["reads"])
        share = seconds / (3 * result("cost")["tensor"]["full"]["step_ms"] / 1000)
        moved, operations = f"{row['bytes'] / 1e6:,.0f} MB", f"{row['operations'] / 1e9:.1f} billion"
        counts = (count(row[each]) for each in ("uploads", "reads", "launches"))
        name = name.replace("before: 16 pieces", "earlier version: 16 known-answer tests")
        rows.append((name, *counts, moved, operations, percent(share, 2)))
    head = ("a turn", "uploads", "reads", "launches", "read and written", "operations of the product", "of three steps")
    return table(head, rows)


def _spread(found: dict[str, float]) -> str:
    return f"{found['median']:.2f} ({found['q25']:.2f} to {found['q75']:.2f})"
