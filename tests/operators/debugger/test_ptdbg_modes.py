"""The modes of the classic `set_dump_switch`."""

import json

import mindspore as ms
import pytest
from debugged_nets import Net, batches

from asd.errors import ConfigError
from asd.operators import ptdbg

pytestmark = pytest.mark.usefixtures("clean", "alone")


@pytest.fixture
def alone():
    """The classic functions keep one state a process."""
    yield
    ptdbg._hooked.switch(False)
    ptdbg._hooked.__init__()
    ptdbg.set_dump_path()


@pytest.fixture
def hooked(tmp_path):
    """What dumps one step of a hooked network; returns the names of its entries."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = Net()
    gradient = ms.grad(net, None, net.trainable_params())
    ptdbg.set_dump_path(tmp_path)

    def dump(**switch):
        ptdbg.register_hook(net, ptdbg.acc_cmp_dump)
        ptdbg.set_dump_switch("ON", **switch)
        for each in gradient(batches(1)[0]):
            each.asnumpy()
        ptdbg.set_dump_switch("OFF")
        return list(json.loads((tmp_path / "ptdbg_dump_v2.0/step0/rank0/dump.json").read_text())["data"])

    return dump


def test_a_list_has_the_named_apis_alone(hooked):
    assert hooked(mode="list", scope=["Functional_tanh_0_backward"]) == ["Functional.tanh.0.backward"]


def test_a_wrong_mode_is_one_sentence(hooked):
    with pytest.raises(ConfigError, match="valid is all, list"):
        hooked(mode="half")
