"""A debugger that is stopped in the middle of a step, or told to end the training at once."""

import logging

import mindspore as ms
import pytest
from debugged_nets import Net, batches, dump_of, recording
from mindspore import nn

from asd.dumps.record.debugger_config import DebuggerConfig
from asd.operators import PrecisionDebugger

pytestmark = pytest.mark.usefixtures("clean")


def test_stop_before_the_backward_pass_leaves_the_forward_pass_and_a_training_as_it_was(tmp_path):

    def losses(debugger):
        net = Net()
        optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)

        def forward(x):
            if debugger:
                debugger.start(net)
            loss = net(x)
            if debugger:
                debugger.stop()
            return loss

        gradient = ms.value_and_grad(forward, None, optimizer.parameters)
        found = []
        for batch in batches(2):
            loss, gradients = gradient(batch)
            optimizer(gradients)
            if debugger:
                debugger.step()
            found.append(float(loss.asnumpy()).hex())
        return found

    config = {"task": "md5", "level": "L0", "dump_path": str(tmp_path)}
    assert losses(PrecisionDebugger(DebuggerConfig.of(config))) == losses(None)
    for step in (0, 1):
        names = list(dump_of(tmp_path, step=step)[0]["data"])
        assert len(names) == 5
        assert all(".forward." in name for name in names)


def test_the_compiled_graph_of_an_optimizer_is_no_reason_to_warn_of_what_graphs_do_not_show(tmp_path, caplog):
    net = Net()
    optimizer = nn.SGD(net.trainable_params(), 0.05)
    with caplog.at_level(logging.WARNING, "asd"), recording(net, tmp_path) as debugger:
        debugger.end_training_at_once()
        _, gradients = ms.value_and_grad(net, None, optimizer.parameters)(batches(1)[0])
        optimizer(gradients)
    assert "Cell.head.Dense.backward.0" in dump_of(tmp_path)[0]["data"]
    assert not [record for record in caplog.records if record.name == "asd"]
