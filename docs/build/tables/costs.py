"""What detection costs."""

from __future__ import annotations

from tables.cells import count, met, milliseconds, percent, ratio, result, table


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


def processor(language: str = "en") -> str:
    """What the costs were measured on."""
    where = result("overhead")["where"]
    return (
        f"{where['processor']}({where['cores']} 核)"
        if language == "zh"
        else f"{where['cores']} cores of an {where['processor']}"
    )


def results_again() -> str:
    """Convolutions, lookups and softmaxes: false alarms, the smallest error that was found, and the cost when due."""
    rows = []
    for found in result("results_again"):
        errors = ", ".join(f"{part} {error:.2g}" for part, error in found["smallest_error_in_rms"].items())
        alarms = f"{count(found['false_alarms'])} of {count(found['elements'])}"
        score, cost = f"{found['largest_clean_score']:.2f}", f"{found['check_over_operator']:.2f}"
        rows.append((found["kind"], found["dtype"], alarms, score, errors, cost))
    return table(("what", "type", "false alarms in elements", "largest healthy score", "smallest error", "cost"), rows)
