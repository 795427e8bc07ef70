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
        "en": ("network and layout", "a step", "protection", "read and written", "of the step", "launches", "kept"),
        "zh": ("网络与切分方式", "一步", "检测", "读写", "占一步", "下发次数", "保留"),
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
        rows.append((name, *counts, moved, operations, percent(share, 2)))
    head = ("a turn", "uploads", "reads", "launches", "read and written", "operations of the product", "of three steps")
    return table(head, rows)


def _spread(found: dict[str, float]) -> str:
    return f"{found['median']:.2f} ({found['q25']:.2f} to {found['q75']:.2f})"
