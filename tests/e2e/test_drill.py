"""A whole drill of a plain training, in both modes: nothing of the training is touched, and faults are found."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

PROGRAM = """\
import os, sys
import mindspore as ms, numpy as np
from mindspore import nn
ms.set_device("CPU")
ms.set_context(mode=ms.PYNATIVE_MODE if sys.argv[1] == "pynative" else ms.GRAPH_MODE)
if sys.argv[1] == "ranks":
    ms.communication.init()
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
ms.set_seed(3)
net = nn.SequentialCell(nn.Dense(16, 32), nn.LayerNorm((32,)), nn.Dense(32, 1))
rows = np.random.default_rng(1).normal(size=(400, 16)).astype(np.float32)
data = ms.dataset.GeneratorDataset([(row, row[:1]) for row in rows], ["x", "y"], shuffle=False).batch(4)
keep = ms.train.ModelCheckpoint("net", "kept" + os.environ.get("RANK_ID", ""))
model = ms.train.Model(net, nn.MSELoss(), nn.AdamWeightDecay(net.trainable_params(), 1e-2))
model.train(epoch=1, train_dataset=data, callbacks=[keep], dataset_sink_mode=False)
"""


def start(tmp_path, *options, mode="graph"):
    (tmp_path / "train.py").write_text(PROGRAM)
    words = [sys.executable, "-m", "asd", "drill", *options, "--", sys.executable, "train.py", mode]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("ASD_", "NPU_ASD_"))}
    environ["http_proxy"] = "http://127.0.0.1:9"  # which must not be asked for what is on this machine
    return subprocess.Popen(words, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["graph", "pynative", "ranks"])
def test_a_plain_training_goes_through_all_parts_and_keeps_its_folder(mode, tmp_path):
    options = ("--json", "--steps", "30", "--faults", "2", "--pairs", "2", "--minutes", "9")
    process = start(tmp_path, *options, *(("--ranks", "2") if mode == "ranks" else ()), mode=mode)
    out, errors = process.communicate()
    told = json.loads(out)["parts"]
    assert {name: part["state"] for name, part in told.items()} == dict.fromkeys(told, "held") | {"cost": "shown"}, told
    assert (process.returncode, errors) == (0, "")
    numbers = told["finds"]["numbers"]
    assert (told["same"]["numbers"]["apart_with"], numbers["tried"], "not struck" in numbers) == (0, 2, False)
    assert {path.name for path in tmp_path.rglob("*")} == {"train.py", "asd_drill", "drill.html", "drill.json"}
    assert not any(each in out for each in (str(tmp_path), os.uname().nodename, "kept"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_leaves_nothing(number, tmp_path):
    with start(tmp_path) as process:
        while not list(tmp_path.glob("asd_drill/.work-*/1/log")):
            time.sleep(0.05)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)
