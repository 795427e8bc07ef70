"""`asd ingest` killed at random points while logs grow and rotate: each alarm is one event in the end."""

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from asd.exporters.run_files.event_log import read_events

KILLS = 15
LINE = (
    "[ERROR] AICPU(1,aicpu_scheduler):2025-02-25-18:43:29.395.610 [silent_check_v3.cc:250][ComputeL1Error][tid:2]"
    "SilentCheckV3 ComputeL1Error:val = [nan], max = [nan], avg=[5.7e-08], step=[{}], c_thresh_l1 = [1.000000e+06], "
    "c_thresh_l2 = [1.000000e+04], beta1 = [9.900000e-01], npu_asd_detect = [2].\n"
)
STRIKE = (
    "[WARNING] DEBUG(1,f,python):2025-08-26-10:46:26.665.782 [silent_detector.cc:109] SilentDetect] Silent detect "
    "strike detected: StrikeRecord{{timestamp: 1756176386, name: w, value: 2e9, stat: StatData{{avg: 1, pre_value: 1, "
    "count: {}, none_zero_count: 1}}}}\n"
)


class Writer(threading.Thread):
    """Appends alarms among noise to two logs, in two writes each, and rotates one of them."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder = folder
        self.ended = threading.Event()
        self.written = {"first": 0, "second": 0}

    def run(self):
        chance = random.Random(5)
        device, worker = self.folder / "device-0" / "device-1_20250225184310213.log", self.folder / "worker_0.log"
        device.parent.mkdir()
        parts = 0
        while not self.ended.is_set():
            for name, path, line in (("first", device, LINE), ("second", worker, STRIKE)):
                self.written[name] += 1
                text = line.format(self.written[name])
                cut = chance.randrange(len(text))
                with path.open("a") as file:
                    file.write(f"noise {self.written}\n" * chance.randrange(20) + text[:cut])
                    file.flush()
                    file.write(text[cut:])
            if chance.random() < 0.03:
                parts += 1  # none is ever deleted
                for age in range(parts, 1, -1):
                    device.with_name(f"{device.name}.{age - 1}").rename(device.with_name(f"{device.name}.{age}"))
                device.rename(device.with_name(f"{device.name}.1"))
            time.sleep(0.004)


def command(folder, *options):
    return [sys.executable, "-m", "asd", "ingest", str(folder / "logs"), "--run-dir", str(folder / "run"), *options]


@pytest.mark.slow
def test_kill_9_at_any_point_loses_no_alarm_and_doubles_none(tmp_path):
    (tmp_path / "logs").mkdir()
    writer = Writer(tmp_path / "logs")
    writer.start()
    chance = random.Random(7)
    log = tmp_path / "run" / "events-ingest.jsonl"
    try:
        for _ in range(KILLS):
            size = log.stat().st_size if log.exists() else 0
            with subprocess.Popen(command(tmp_path), stdout=subprocess.DEVNULL) as process:
                end = time.monotonic() + 30
                while not log.exists() or log.stat().st_size == size:  # it is at work
                    assert process.poll() is None
                    assert time.monotonic() < end
                    time.sleep(0.001)
                time.sleep(chance.random() * 0.15)
                process.kill()
    finally:
        writer.ended.set()
        writer.join(30)
    subprocess.run(command(tmp_path, "--once"), stdout=subprocess.DEVNULL, check=True)
    events = read_events(log)
    for feature, name in (("silent_check_v3", "first"), ("combined", "second")):
        steps = Counter(event.step for event in events if event.rule == feature)
        assert steps == Counter(range(1, writer.written[name] + 1))
    assert writer.written["first"] > 100
    assert sum(1 for _ in os.scandir(tmp_path / "logs" / "device-0")) > 2
