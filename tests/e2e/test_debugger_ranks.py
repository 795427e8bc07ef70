"""Two real ranks dump beside each other, and one comparison goes over both."""

import pytest

from asd.dumps.compare.runs import compare_runs
from asd.dumps.formats.request import Request


@pytest.mark.slow
def test_two_ranks_dump_apart_and_the_rank_with_the_fault_is_named(runner):
    done, _ = runner.ranks("dumped_ranks.py", runner.folder)
    assert done.code == 0, done
    golden, run = runner.folder / "golden", runner.folder / "run"
    for folder in (golden, run):
        found = sorted(str(path.parent.relative_to(folder)) for path in folder.rglob("dump.json"))
        assert found == ["step0/rank0", "step0/rank1", "step1/rank0", "step1/rank1"]
    outcome = compare_runs(Request(run, golden), runner.folder / "out")
    assert len(outcome.pairs) == 4
    assert [(pair.step, pair.rank) for pair in outcome.pairs if pair.divergence is not None] == [(1, 1)]
    assert outcome.sentence.startswith("A weight differs before Cell.second.Dense.forward.0 uses it")
    assert outcome.sentence.endswith("[step 1, rank 1]")
