"""The modes of the classic `set_dump_switch` and `register_hook`."""

import json
import logging

import mindspore as ms
import numpy as np
import pytest
from debugged_nets import Net, batches

from asd.dumps.formats.dump_folder import read_dump
from asd.errors import ConfigError
from asd.operators import ptdbg
from asd.operators.debugger.switch_modes import todays_name

pytestmark = pytest.mark.usefixtures("clean", "alone")
TANH, PRODUCT = "Functional.tanh.0", "Primitive.matmul.MatMul.0"


@pytest.fixture
def alone():
    """The classic functions keep one state a process."""
    yield
    ptdbg._hooked.switch(False)
    ptdbg._hooked.__init__()
    ptdbg.set_dump_path()


@pytest.fixture
def hooked(tmp_path):
    """A network that is hooked, and what dumps one step of it."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = Net()
    gradient = ms.grad(net, None, net.trainable_params())
    ptdbg.set_dump_path(tmp_path, classic=True)

    def dump(rank=None, hook_mode="all", **switch):
        ptdbg.register_hook(net, ptdbg.acc_cmp_dump, rank=rank, dump_mode=hook_mode)
        ptdbg.set_dump_switch("ON", **switch)
        for each in gradient(batches(1)[0]):
            each.asnumpy()
        ptdbg.set_dump_switch("OFF")
        folder = tmp_path / "ptdbg_dump_v2.0" / "step0" / f"rank{rank or 0}"
        return [json.loads((folder / f"{name}.json").read_text()) for name in ("dump", "stack")]

    return dump


def test_the_classic_tree_holds_lines_of_text_and_each_tensor_and_is_read_again(hooked, tmp_path):
    dump, _ = hooked(rank=3)
    folder = tmp_path / "ptdbg_dump_v2.0" / "rank3"
    lines = [json.loads(line) for line in (folder / "dump.pkl").read_text().splitlines()]
    named = {line[0]: line for line in lines}
    tensor = dump["data"][f"{TANH}.forward"]["output"][0]
    summary = [tensor["Max"], tensor["Min"], tensor["Mean"]]
    assert named["Functional_tanh_0_forward_output"] == [
        "Functional_tanh_0_forward_output", 1, [], "mindspore.float32", [4, 8], summary
    ]  # fmt: skip
    assert named["Tensor___mul___0_forward_input.1"][3:] == ["<class 'float'>", [], [0.1, 0.1, 0.1]]
    assert any("debugged_nets.py" in frame for frame in named["Functional_tanh_0_forward_stack_info"][1])
    array = np.load(folder / "dump" / "Functional_tanh_0_forward_output.npy", allow_pickle=False)
    assert float(array.max()) == pytest.approx(tensor["Max"])
    read = read_dump(folder / "dump.pkl")
    assert {"Functional_tanh_0_forward", "Primitive_matmul_MatMul_0_backward"} <= set(read.entries)
    (output,) = (slot for slot in read.entries["Functional_tanh_0_forward"].slots if slot.state == "output")
    assert (output.scalar, output.data_name) == (None, "Functional_tanh_0_forward_output.npy")
    hooked(rank=3)
    assert (folder / "dump.1.pkl").exists()


def test_the_mode_stack_dumps_stacks_alone(hooked):
    dump, stack = hooked(mode="stack", scope=["Primitive_matmul_MatMul_0_forward", "Functional_tanh_0_forward"])
    assert dump["data"] == {}
    assert {f"{PRODUCT}.forward", f"{TANH}.forward"} <= set(stack)
    assert not any("head" in name or "mean" in name for name in stack)


def test_the_mode_acl_is_told_to_be_of_kernels_and_dumps_the_api(hooked, caplog):
    with caplog.at_level(logging.WARNING, "asd"):
        dump, _ = hooked(mode="acl", scope=["Functional_tanh_0_forward"])
    assert list(dump["data"]) == [f"{TANH}.forward"]
    assert [record.message for record in caplog.records if "acl" in record.message] == [
        'mode "acl" asks for the data of the kernels below an API, which only Ascend\'s own dump has '
        "(MINDSPORE_DUMP_CONFIG): the inputs and outputs of the APIs themselves are dumped."
    ]


def test_the_filter_leaves_out_what_is_no_floating_point_tensor(hooked):
    kept, _ = hooked(mode="api_list", api_list=["__mul__"], filter_switch="OFF", dump_mode="forward")
    assert set(kept["data"]) == {"Tensor.__mul__.0.forward", "Tensor.__mul__.1.forward"}
    assert kept["data"]["Tensor.__mul__.0.forward"]["input_args"][1] == {"type": "float", "value": 0.1}
    ptdbg._hooked.__init__()


@pytest.mark.parametrize("summary_only", [False, True])
def test_the_filter_is_on_when_it_is_asked_for(summary_only, hooked):
    dump, _ = hooked(filter_switch="ON", summary_only=summary_only, dump_mode=["forward", "input"])
    args = dump["data"]["Tensor.__mul__.0.forward"]["input_args"]
    assert [each["dtype"] for each in args] == ["Float32"]
    assert ("data_name" in args[0]) is not summary_only
    assert all(name.endswith("forward") and not entry.get("output") for name, entry in dump["data"].items())


def test_wrong_values_are_one_sentence(hooked):
    for switch, sentence in (
        ({"mode": "half"}, "all, list, range, stack, api_list, api_stack, acl"),
        ({"filter_switch": "MAYBE"}, "valid is ON or OFF"),
        ({"dump_mode": "sideways"}, "all, forward, backward, input, output"),
        ({"mode": "range", "scope": ["Functional_tanh_0_forward"]}, "the first and the last API"),
        ({"mode": "api_list"}, "a part of the names"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            hooked(**switch)
    with pytest.raises(ConfigError, match="a whole number from 0"):
        hooked(rank=-1)


def test_older_names_of_operators_have_the_class_last():
    assert todays_name("Primitive_reshape_flat_Reshape_2_forward") == "Primitive.reshape_flat.Reshape.2.forward"
