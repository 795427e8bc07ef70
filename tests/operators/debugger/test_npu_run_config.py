"""Scripts of the TensorFlow adapter: their two ways to ask for overflow collection."""

from types import SimpleNamespace

import numpy as np
import pytest
from debugged_nets import Net
from mindspore import Tensor

from asd.errors import ConfigError, OverflowDetected
from asd.operators import DumpConfig, NPURunConfig, PrecisionDebugger, dump_config_of

pytestmark = pytest.mark.usefixtures("clean")


def session_options(folder):
    """As `custom_op.parameter_map` holds them."""
    return {
        "use_off_line": SimpleNamespace(b=True, s=b""),
        "dump_path": SimpleNamespace(b=False, s=str(folder).encode()),
        "enable_dump_debug": SimpleNamespace(b=True, s=b""),
        "dump_debug_mode": SimpleNamespace(b=False, s=b"all"),
    }


def test_the_options_of_a_session_are_a_dump_config(tmp_path):
    config = dump_config_of(session_options(tmp_path))
    assert (config.enable_dump_debug, config.enable_dump, config.dump_debug_mode) == (True, False, "all")
    assert config.dump_path == tmp_path
    assert dump_config_of({"enable_dump": True, "dump_path": str(tmp_path)}).settings().task == "tensor"


@pytest.mark.parametrize("way", ["estimator", "session"])
def test_either_way_a_debugger_finds_the_overflow(way, tmp_path):
    options = {"enable_dump_debug": True, "dump_path": str(tmp_path), "dump_debug_mode": "all"}
    config = dump_config_of(session_options(tmp_path)) if way == "session" else DumpConfig(**options)
    config.overflow_nums = 1
    run = NPURunConfig(dump_config=config, session_config=object())
    debugger = PrecisionDebugger(run if way == "estimator" else config)
    net = Net()
    debugger.start(net)
    net(Tensor(np.full((4, 8), 3e38, np.float32))).asnumpy()
    with pytest.raises(OverflowDetected, match=r"\[overflow 1 times\]"):
        debugger.stop()
    assert list(tmp_path.rglob("Overflow_info_*_1.pkl"))


def test_what_is_no_dump_config_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="DumpConfig"):
        NPURunConfig(dump_config={"dump_path": str(tmp_path)})
    with pytest.raises(ConfigError, match="has no dump_config"):
        PrecisionDebugger(NPURunConfig())
    with pytest.raises(ConfigError, match="UTF-8"):
        dump_config_of({"dump_path": b"\xff"})
