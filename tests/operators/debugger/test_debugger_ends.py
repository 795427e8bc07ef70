"""A debugger that is stopped in the middle of a step, and scripts of the classic tool."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import mindspore as ms
import pytest
from debugged_nets import Net, batches, dump_of
from mindspore import nn

from asd.dumps.record.debugger_config import DebuggerConfig
from asd.operators import PrecisionDebugger

pytestmark = pytest.mark.usefixtures("clean")


def test_stop_before_the_backward_pass_leaves_the_forward_pass_and_a_training_as_it_was(tmp_path):
    ms.set_context(mode=ms.PYNATIVE_MODE)

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
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = Net()
    optimizer = nn.SGD(net.trainable_params(), 0.05)
    debugger = PrecisionDebugger(DebuggerConfig.of({"task": "md5", "level": "mix", "dump_path": str(tmp_path)}))
    with caplog.at_level(logging.WARNING, "asd"):
        debugger.start(net)
        debugger.end_training_at_once()
        _, gradients = ms.value_and_grad(net, None, optimizer.parameters)(batches(1)[0])
        optimizer(gradients)
        debugger.stop()
    assert "Cell.head.Dense.backward.0" in dump_of(tmp_path)[0]["data"]
    assert not [record for record in caplog.records if record.name == "asd"]


def test_the_scripts_of_the_classic_tool_run_with_their_import_line_changed(tmp_path):
    here = str(Path(__file__).parents[1])
    train = f"""
import sys
sys.path.insert(0, {here!r})
from asd.operators.ptdbg import register_hook, overflow_check, seed_all, set_dump_path, set_dump_switch, acc_cmp_dump
from debugged_nets import Net, batches
import mindspore as ms

def main():
    ms.set_context(mode=ms.PYNATIVE_MODE)
    seed_all()
    model = Net()
    set_dump_path("./dump_data_new/" + sys.argv[1])
    register_hook(model, acc_cmp_dump)
    set_dump_switch("ON")
    for epoch in range(1, 2):
        for batch in batches(2):
            ms.grad(model)(batch)
    set_dump_switch("OFF")

main()
"""
    side = '''"{path}": "{root}/dump_data_new/{side}/ptdbg_dump_v2.0/rank0/dump{end}"'''
    keys = [
        ("npu_pkl_path", "npu", ".pkl"),
        ("bench_pkl_path", "cpu", ".pkl"),
        ("npu_dump_data_dir", "npu", ""),
        ("bench_dump_data_dir", "cpu", ""),
    ]
    lines = ",\n    ".join(side.format(path=path, root=tmp_path, side=which, end=end) for path, which, end in keys)
    compare = f"""
from asd.operators.ptdbg import compare

dump_result_param={{
    {lines}
}}

compare(dump_result_param, "./out")
"""
    for side in ("npu", "cpu"):
        subprocess.run([sys.executable, "-c", train, side], cwd=tmp_path, check=True)
    compared = subprocess.run([sys.executable, "-c", compare], cwd=tmp_path, check=True, capture_output=True, text=True)
    overflow = train.replace("acc_cmp_dump)", "overflow_check, overflow_nums=1)").replace(
        "batches(2)", "[batches(1)[0] * 0 + 3e38]"
    )
    overflow = overflow.replace('"./dump_data_new/" + sys.argv[1]', "\"./data/dump\", dump_tag='npu_overflow'")
    (result,) = (tmp_path / "out").glob("compare_result_*.csv")
    file, sentence = compared.stdout.splitlines()
    assert Path(file).name == result.name
    assert sentence.startswith("The runs do not part")
    rows = result.read_text().splitlines()
    assert "Accuracy Reached or Not" in rows[0]
    assert len(rows) > 20
    assert not any(",No," in row for row in rows)
    overflow = "\n".join(line for line in overflow.splitlines() if 'set_dump_switch("' not in line)
    ended = subprocess.run([sys.executable, "-c", overflow], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "[overflow 1 times]" in ended.stderr
    (record,) = (tmp_path / "data" / "dump" / "npu_overflow_v2.0").rglob("Overflow_info_*_1.pkl")
    assert json.loads(record.read_text().splitlines()[-1])[0].rsplit("_", 1)[1].startswith("output")
