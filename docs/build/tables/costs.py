"""What single updates of the rules cost."""

from __future__ import annotations

from tables.cells import result, table


def rules() -> str:
    """What one update of each rule takes on the host."""
    found = [(each["rule"], each["ns_per_update"] / 1000) for each in result("rules")["rules"]]
    return table(("one update of the rule", "measured"), [(f"`{rule}`", f"{micro:.1f} µs") for rule, micro in found])
