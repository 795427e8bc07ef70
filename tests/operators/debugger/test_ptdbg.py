"""The classic functions, called as in the scripts of theirs."""

import json
from pathlib import Path

import mindspore as ms
import pytest
from debugged_nets import Net, batches, dump_of

from asd.errors import ConfigError, OverflowDetected
from asd.operators import ptdbg

pytestmark = pytest.mark.usefixtures("clean", "alone")


@pytest.fixture
def alone():
    """The classic functions keep one state a process."""
    yield
    forget()


def forget():
    ptdbg._hooked.switch(False)
    ptdbg._hooked.__init__()
    ptdbg.set_dump_path()


def dump(path, **switch):
    """Two steps of a hooked network, of which none is dumped before ON."""
    ptdbg.seed_all()
    net = Net()
    ptdbg.set_dump_path(path)
    ptdbg.register_hook(net, ptdbg.acc_cmp_dump)
    net(batches(1)[0])
    ptdbg.set_dump_switch("ON", **switch)
    for batch in batches(2):
        ms.grad(net)(batch)
    ptdbg.set_dump_switch("OFF")
    return list(dump_of(Path(path) / "ptdbg_dump_v2.0")[0]["data"])


def test_two_dumps_are_compared_by_the_paths_that_such_scripts_name(tmp_path, capsys):
    for side in ("npu", "cpu"):
        assert "Primitive.matmul.MatMul.0.forward" in dump(f"./dump_data_new/{side}")
        forget()
    named = {}
    for key, side in (("npu", "npu"), ("bench", "cpu")):
        rank = tmp_path / "dump_data_new" / side / "ptdbg_dump_v2.0" / "rank0"
        named |= {f"{key}_pkl_path": f"{rank}/dump.pkl", f"{key}_dump_data_dir": f"{rank}/dump"}
    ptdbg.compare(named, "./out")
    (result,) = (tmp_path / "out").glob("compare_result_*.csv")
    file, sentence = capsys.readouterr().out.splitlines()
    assert Path(file).name == result.name
    assert sentence.startswith("The runs do not part")
    rows = result.read_text().splitlines()
    assert "Accuracy Reached or Not" in rows[0]
    assert len(rows) > 20
    assert not any(",No," in row for row in rows)


def test_an_overflow_ends_the_training_and_leaves_its_record(tmp_path):
    net = Net()
    ptdbg.set_dump_path("./data/dump", dump_tag="npu_overflow")
    ptdbg.register_hook(net, ptdbg.overflow_check, overflow_nums=1)
    with pytest.raises(OverflowDetected, match=r"\[overflow 1 times\]"):
        net(batches(1)[0] * 0 + 3e38)  # a backward pass would not be ended
    (record,) = (tmp_path / "data" / "dump" / "npu_overflow_v2.0").rglob("Overflow_info_*_1.pkl")
    assert json.loads(record.read_text().splitlines()[-1])[0].rsplit("_", 1)[1].startswith("output")
    with pytest.raises(ConfigError, match="can't be on together"):
        ptdbg.register_hook(net, ptdbg.acc_cmp_dump)


def test_a_list_has_the_named_apis_alone():
    assert dump("d", mode="list", scope=["Functional_tanh_0_backward"]) == ["Functional.tanh.0.backward"]
    with pytest.raises(ConfigError, match="all, list"):
        ptdbg.set_dump_switch("ON", mode="half")
