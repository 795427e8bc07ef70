"""`Combined` against the vendor's own detector: the C++ class SilentDetector inside MindSpore's CPU build."""

import importlib.util
import json
import math
import os
import random
import re
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from asd.rules import Combined
from asd.verdict import Level

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("mindspore") is None, reason="needs MindSpore"),
]

VALUES_PER_CONFIGURATION = 5000
CONFIGURATIONS = [(1000000, 100), (3, 3), (5, 1000000), (10, 100), (50, 50), (1000, 30), (100000, 5), (10000000, 50)]
CONFIGURATIONS += [(2147483647, 2147483647)]

VENDOR = """
import json, sys
import numpy as np
from mindspore import Tensor, _c_expression, ops

dump = ops.TensorDump()
name = _c_expression.get_silent_detect_feature_name("w")
for value in json.load(sys.stdin):
    dump(name, Tensor(np.float32(value)))
"""

STAT = r"StatData\{avg: (\S+), pre_value: (\S+), count: (\d+), none_zero_count: (\d+)\}"
LINE = re.compile(
    rf"After silent detect, name is w, stat is (?P<state>{STAT})"
    rf"|Strike (?:happened\. record|will not be recorded repeatedly.* exception info) is StrikeRecord"
    rf"\{{timestamp: \d+, name: w, value: (?P<value>\S+), stat: (?P<strike>{STAT})\}}"
)
"""A state or a strike. In the five minutes after a strike others are only mentioned; they are strikes all the same."""


def float32(value):
    """The nearest float32, which is what the vendor gets to see."""
    return struct.unpack("f", struct.pack("f", value))[0]


def random_values(seed, count):
    """Healthy values of a slowly changing level, among them spikes, zeros, tiny values, repetitions, inf and NaN."""
    source = random.Random(seed)
    level = 10.0 ** source.uniform(-6, 1)
    values = []
    for index in range(count):
        level *= 10.0 ** source.gauss(0, 0.01)
        healthy = level * 10.0 ** source.gauss(0, 0.3)
        kind = source.random()
        if kind < 0.85 or (index < 10 and seed % 2):
            value = healthy
        elif kind < 0.92:
            value = healthy * 10.0 ** source.uniform(1, 12)
        elif kind < 0.95:
            value = source.choice((0.0, 1e-45, 1e-40, 1.2e-38, 1e-30, 3.4e38))
        elif kind < 0.97:
            value = source.choice((math.inf, math.nan))
        else:
            value = values[-1] * source.choice((1, 1, 2, 10, 1000)) if values else 0.0
        values.append(float32(min(value, 3.4e38)) if math.isfinite(value) else value)
    return values


def printed(state):
    """The state as the vendor prints it."""
    return f"{state['avg']:g}", f"{state['pre_value']:g}", str(state["count"]), str(state["none_zero_count"])


def numbers(stat):
    """The printed numbers of one StatData; the sign of a NaN means nothing."""
    return tuple(number.replace("-nan", "nan") for number in re.fullmatch(STAT, stat).groups())


def run_vendor(thresholds, values):
    """Per value the state after it, and the printed value and the state before it if it was a strike, else None."""
    first, second = thresholds
    config = f"enable:true,upper_thresh1:{first},upper_thresh2:{second}"
    logs = {"VLOG_v": "13001", "GLOG_v": "2", "GLOG_logtostderr": "1"}
    environment = {**os.environ, **logs, "MS_NPU_ASD_CONFIG": config}
    command = [sys.executable, "-c", VENDOR]
    result = subprocess.run(
        command, input=json.dumps(values), env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert f"upper_thresh1: {first}, upper_thresh2: {second}," in result.stderr
    rows = []
    for match in LINE.finditer(result.stderr):
        if match["state"]:
            rows.append((numbers(match["state"]), None))
        else:
            rows[-1] = rows[-1][0], (match["value"].replace("-nan", "nan"), numbers(match["strike"]))
    return rows


def run_ours(thresholds, values):
    """The same from our rule."""
    rule = Combined(*thresholds)
    rows = []
    for value in values:
        before = printed(rule.state())
        struck = rule.update(value).level is Level.ERROR
        rows.append((printed(rule.state()), (f"{value:g}", before) if struck else None))
    return rows


@pytest.fixture(scope="module")
def runs():
    """All vendor processes, two at a time, started before the first test asks for its own."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        streams = {pair: random_values(seed, VALUES_PER_CONFIGURATION) for seed, pair in enumerate(CONFIGURATIONS)}
        yield {pair: (values, pool.submit(run_vendor, pair, values)) for pair, values in streams.items()}


@pytest.mark.parametrize("thresholds", CONFIGURATIONS, ids=lambda pair: "{}-{}".format(*pair))
def test_combined_gives_the_state_and_the_strikes_of_the_vendor_detector(runs, thresholds):
    values, vendor = runs[thresholds]
    theirs, ours = vendor.result(), run_ours(thresholds, values)
    assert len(theirs) == len(values)
    differences = [(i, values[i], a, b) for i, (a, b) in enumerate(zip(theirs, ours, strict=True)) if a != b]
    assert differences == []
    strikes = sum(strike is not None for _, strike in ours)
    assert sum(not math.isfinite(value) for value in values) < strikes < len(values)


def test_a_difference_would_be_seen(runs):
    values, vendor = runs[1000, 30]
    assert run_ours((1000, 60), values) != vendor.result()
    assert run_ours((2000, 30), values) != vendor.result()
