import json
import runpy
from pathlib import Path

from asd.rules import RULES

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "rules.py"


def test_the_benchmark_prints_and_writes_every_rule_and_healthy_values_are_not_flagged(tmp_path, capsys):
    result = tmp_path / "rules.json"
    main = runpy.run_path(str(BENCHMARK))["main"]
    assert main(["--updates", "300", "--repeats", "2", "--json", str(result)]) == 0
    rows = json.loads(result.read_text())["rules"]
    assert [row["rule"] for row in rows] == list(RULES)
    assert all(row["flagged"] == 0 and row["ns_per_update"] > 0 for row in rows)
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(RULES)
