"""Compiles training steps for Ascend, of one network and layout; `compile_matrix.py` starts it."""

import gc
import importlib
import json
import os
import sys
import time
from pathlib import Path

import mindspore as ms
from layout import Layout
from mindspore import nn
from mindspore.communication import init
from mindspore.nn.wrap.cell_wrapper import _TrainGradAccuStepCell
from mindspore.parallel.auto_parallel import AutoParallel
from mindspore.train import RunContext
from mindspore.train.callback import _InternalCallbackParam
from mindspore.train.dataset_helper import _DataWrapper

from asd.injection import Fault

MODULES = {
    "llama": "llama",
    "qwen": "qwen",
    "qwen_moe": "qwen",
    **dict.fromkeys(("one_layer", "two_layers", "whole_vocabulary"), "llama"),
    **dict.fromkeys(("one_expert_layer", "two_expert_layers", "experts_with_vocabulary"), "qwen"),
}


def main():
    net_name, layout = sys.argv[1], Layout(**json.loads(sys.argv[2]))
    ms.set_context(mode=ms.GRAPH_MODE, device_target="Ascend", jit_config={"jit_level": "O0"})
    if layout.parallel != "stand_alone":
        init()
    if layout.parallel != "stand_alone" and not layout.wrapped:
        ms.set_auto_parallel_context(**layout.context())
    make = getattr(importlib.import_module(MODULES.get(net_name, "small")), net_name)
    for settings in json.loads(sys.argv[3]):
        before = _graphs()
        os.environ.update(settings)
        try:
            found = {"error": "", "seconds": round(compile_step(make, layout, guarded=bool(settings)), 1)}
        except Exception as error:  # whatever a compiler may raise is what is asked for
            text = str(error).strip() or type(error).__name__
            found = {"error": f"{type(error).__name__}: {text.splitlines()[0]}", "seconds": 0.0}
            print(text)
        for name in settings:
            del os.environ[name]
        gc.collect()
        print(json.dumps({**found, "graphs": sorted(_graphs() - before)}), flush=True)


def compile_step(make, layout, *, guarded):
    if guarded:  # before the network is made, as `asd run` does
        from asd.operators import StepMonitor
    net, batch = make(layout)
    optimizer = nn.AdamWeightDecay(net.trainable_params(), 1e-3)
    make = importlib.import_module("qwen").own_step if layout.own else _step
    step = make(net, optimizer, layout)
    if layout.wrapped:
        step = AutoParallel(step, "semi_auto")
        step.dataset_strategy("full_batch")
    monitor = StepMonitor() if guarded else None
    began = time.process_time()
    if layout.sunk:
        _compile_sunk(step, optimizer, batch, monitor, layout.sunk)
        return time.process_time() - began
    if guarded:
        monitor.attach(step, optimizer)
    _inject(step, optimizer)
    step.set_train()
    step(*[batch] * (2 if layout.own else 1))  # there a batch and its answers
    return time.process_time() - began


def _compile_sunk(step, optimizer, batch, monitor, last):
    cell = _DataWrapper(step, [batch.dtype], [list(batch.shape)], "queue").add_flags(sink_mode=True).set_train()
    training = _InternalCallbackParam(optimizer=optimizer, dataset_sink_mode=True, sink_size=1)
    for part, name in ((step, "on_train_begin"), (cell, "on_train_step_begin")):
        training.train_network = part
        if monitor is not None:
            getattr(monitor, name)(RunContext(training))
    _inject(step, optimizer)
    cell.compile()
    if last == "rerun":
        step.set_train().compile(batch)


def _inject(step, optimizer):
    for text in os.environ.get("FAULTS", "").split():
        from asd.operators.drill.inject import FaultInjector

        injector = FaultInjector(Fault.parse(text))
        injector.attach(step, optimizer)
        injector.begin_step()


def _step(net, optimizer, layout):
    if layout.stages > 1:
        return _TrainGradAccuStepCell(nn.PipelineCell(net, layout.micro_batches), optimizer)
    if layout.accumulate > 1:
        return _TrainGradAccuStepCell(nn.GradAccumulationCell(net, layout.micro_batches), optimizer)
    if layout.dynamic_scale:
        return nn.TrainOneStepWithLossScaleCell(net, optimizer, nn.DynamicLossScaleUpdateCell(2.0**16, 2, 1000))
    return nn.TrainOneStepCell(net, optimizer)


def _graphs():
    return {str(path) for path in Path(os.environ["MS_DEV_SAVE_GRAPHS_PATH"]).rglob("*_validate_*.ir")}


if __name__ == "__main__":
    main()
    # Not the interpreter's end, where MindSpore would give back a device that there never was.
    sys.stdout.flush()
    os._exit(0)
