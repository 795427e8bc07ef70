"""A comparison accuses nobody of two healthy runs, whatever their levels, tasks and tools."""

import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from matrix import TIMEOUT

pytestmark = pytest.mark.zoo

KINDS = "batchnorm groupnorm unet encoder tied swiglu moesoft adapters recommender diffusion casts castdense"


@pytest.mark.parametrize(("kind", "precision"), list(product(KINDS.split(), ("float32", "float16"))))
def test_nobody_is_accused_of_healthy_runs(kind, precision):
    program = Path(__file__).with_name("healthy_pairs.py")
    done = subprocess.run(
        [sys.executable, str(program), kind, precision], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == []
