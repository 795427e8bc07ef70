"""Trainings that are divided over ranks, run here or compiled for Ascend."""

from __future__ import annotations

from tables.cells import count, result, table


def groups() -> str:
    """What ranks exchange in jobs of tensor parallel 8 by 16 stages, by how many replicas there are."""
    found = result("groups")["groups"]
    rows = [
        (
            count(row["ranks"]),
            f"{row['step_bytes'] / 1024:.0f} KiB, {row['step_ms']:.0f} ms",
            f"{row['hash_bytes'] / 1024:.0f} KiB, {row['hash_ms']:.1f} ms",
            f"{row['refused_bytes'] / 1024:.0f} KiB, {row['refused_ms']:.0f} ms",
        )
        for row in found["rows"]
    ]
    powers = found["exponents"]
    last = (
        "grows with the ranks to the power of",
        f"{powers['usual_step_bytes']:.2f} in bytes, {powers['usual_step_ms']:.2f} in time",
        "",
        f"{powers['refused_ms']:.2f} in time",
    )
    return table(("ranks", "each step", "weights, each 16 steps", "a refused step"), [*rows, last])


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
