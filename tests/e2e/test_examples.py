"""Every example runs from an empty folder, quickly, says what it promises and leaves nothing behind."""

import re
import sys
import time
from pathlib import Path

import pytest

from tests.support.tables import quick

EXAMPLES = Path(__file__).parents[2] / "examples"
EXPECTED = {
    "model_train.py": [
        "ended at step 7, update refused: False, healed: True",
        r"accuracy sensitivity feature abnormal: .* code=80818C00 .* checkpoint=norm .* refused=no healed=yes .*",
    ],
    "own_check_operator.py": [r"step 5: gradient norm at 0.gather is [0-9.]+e\+1[01], update refused"],
    "own_training_loop.py": [
        r"step 6: loss [0-9.]+e\+2[0-9], weights kept",
        r"  80818C00 at norm: value [0-9.]+e\+1[0-9], limit [0-9.]+e\+0[0-9]",
        "step 7: loss [0-9.]+, weights changed",
    ],
    "resume.py": [
        "kept: net-1_20.ckpt, net-1_20.ckpt.asd-rank0.json",
        "limit of norm after step 20: (?P<limit>[0-9.]+)",
        "limit that judged step 21:  (?P<again>[0-9.]+)",
    ],
    "rules_only.py": [
        "step 160: threshold says ERROR of inf, not finite",
        "largest value that is healthy next: .*'silent_check_v3': inf, 'adaptive': 4950.*",
        "a restored rule has the same limit: True",
    ],
    "supervised_training.py": [
        "asd: device 1 is isolated: the replay of step 6 of job found persistent hardware.",
        r"asd: job\+2 begins: rank 0 on device 0, rank 1 on device 2; from asd_run/checkpoints-0/net-1_4.ckpt.",
        r"asd: job\+2 is done: every rank has ended with exit code 0.",
        "rank1: made step 10 on device 2",
        "[^ ]+ +CPU:0 .* OK .* in use .*",
        "[^ ]+ +CPU:1 .* Warning .* 1 persistent +isolated +local .*",
    ],
}
SECONDS = {"supervised_training.py": 60}
NAMES = quick(1, sorted(EXPECTED, key="rules_only.py".__ne__))  # README runs model_train.py


def test_every_example_is_run_here():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_prints_what_it_promises(runner, name):
    began = time.monotonic()
    done = runner.run(sys.executable, EXAMPLES / name)
    assert time.monotonic() - began < SECONDS.get(name, 30)
    assert (done.code, done.err) == (0, "")
    lines = iter(done.out.splitlines())
    found = {}
    for pattern in EXPECTED[name]:  # in this order, with other lines in between
        match = next((match for line in lines if (match := re.fullmatch(pattern, line))), None)
        assert match, (pattern, done.out)
        found |= match.groupdict()
    assert found.get("limit") == found.get("again")
    assert not any(runner.folder.iterdir())


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_is_short_and_says_what_it_shows(name):
    text = (EXAMPLES / name).read_text()
    assert text.startswith('"""')
    assert text.count("\n") < 70
