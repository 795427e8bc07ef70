"""All of MindSpore is what it was once detection is switched off again."""

import json
import os
import subprocess
import sys
from pathlib import Path

import asd

PARSER = ["mindspore.graph._parse.parser.Parser.analyze_super"]
PARSER += [f"mindspore._c_expression.{kind}Executor_.compile" for kind in ("Graph", "Jit")]
"""They stay as long as MindSpore keeps a compiled network with checks: it may compile that once more."""
PROGRAM = '''
import gc, json, os, sys
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops


def attributes():
    """Every attribute of MindSpore's modules and of the classes in them that can be called or is a descriptor."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "mindspore" and module is not None:
            for key, value in list(vars(module).items()):
                found[name, key] = value
                if isinstance(value, type) and str(getattr(value, "__module__", "")).partition(".")[0] == "mindspore":
                    found.update({(f"{value.__module__}.{value.__qualname__}", k): v for k, v in vars(value).items()})
    return {place: value for place, value in found.items() if callable(value) or hasattr(value, "__get__")}


def train(monitor=None):
    net = nn.SequentialCell(nn.Dense(4, 4), nn.LayerNorm((4,)), nn.Dropout(p=0.5), nn.Dense(4, 1))
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    cell = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer).set_train()
    if monitor is not None:
        monitor.attach(cell, optimizer)
    for _ in range(3):
        loss = cell(Tensor(np.ones((2, 4), np.float32)), Tensor(np.ones((2, 1), np.float32)))
        if monitor is not None:
            monitor.step(loss)


ms.set_context(mode=int(sys.argv[1]))
train()  # MindSpore keeps much for later at its first training
before = attributes()
os.environ["NPU_ASD_ENABLE"] = "1"  # at the start it would be enough by itself
import asd.operators
from asd.operators.private import patches
asd.operators.enable()
train(asd.operators.StepMonitor(sinks=[]))
train()
during, replaced = attributes(), [place[:2] for place in patches._table.values()]
asd.operators.disable()
gc.collect()
asd.operators.disable()
after = attributes()
print(json.dumps({
    "replaced": sorted(name for _, name in replaced),
    "seen": sorted({name for (_, name), value in during.items() if before.get((_, name)) is not value}),
    "left": sorted(".".join(place) for place in before if after.get(place) is not before[place]),
    "new": sorted(".".join(place) for place in set(after) - set(before) if getattr(
        after[place], "__module__", None) and str(after[place].__module__).startswith("asd")),
    "table": len(patches._table),
}))
'''


def test_disable_leaves_nothing_behind_and_every_patch_would_have_been_seen(tmp_path):
    for mode, may_stay in (("1", []), ("0", PARSER)):
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("NPU_ASD", "ASD_"))}
        environ |= {"PYTHONPATH": str(Path(asd.__file__).parents[1]), "ASD_OPTIONS": "confirm:0.01"}
        command, how = [sys.executable, "-c", PROGRAM, mode], {"capture_output": True, "text": True, "check": False}
        done = subprocess.run(command, env=environ, cwd=tmp_path, **how)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        assert {"__call__", "train", "LayerNorm", "RmsNorm"} <= set(found["replaced"])
        assert set(found["replaced"]) <= set(found["seen"])
        assert set(found["left"]) <= set(may_stay)
        assert (found["new"], found["table"]) == ([], len(found["left"]))
