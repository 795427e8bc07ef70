"""How MindSpore divides a network is known when a monitor is attached, whoever says it."""

import mindspore as ms
import pytest
from mindspore import nn
from mindspore.parallel.auto_parallel import AutoParallel

from asd import Config
from asd.operators import GatherASD, StepMonitor
from asd.operators.private.layout import division, is_pipeline, operators_are_divided, remember_division
from asd.operators.ranks.exchange import Exchange
from asd.operators.sensors.install import sites_of


@pytest.fixture(autouse=True)
def _as_before():
    yield
    ms.reset_auto_parallel_context()
    remember_division(None)


def divided(net, ranks=8, mode="semi_auto"):
    cell = AutoParallel(net, mode)
    cell._device_num = ranks
    return cell


@pytest.mark.parametrize(("is_set", "context"), [(False, ["stand_alone", 1]), (True, ["semi_auto_parallel", 8])])
def test_an_auto_parallel_cell_says_it_and_the_context_stays_also_where_model_train_has_set_it(is_set, context):
    cell = divided(nn.ReLU())
    cell.pipeline(stages=2)
    if is_set:
        ms.parallel._utils._init_auto_parallel_context(cell)
    remember_division(nn.SequentialCell([cell]))
    assert operators_are_divided()
    assert is_pipeline()
    assert [ms.get_auto_parallel_context(name) for name in ("parallel_mode", "device_num")] == context
    remember_division(divided(nn.ReLU(), ranks=1))
    assert division("parallel_mode") == "stand_alone"


def test_the_layout_is_known_before_the_replica_groups_are_and_forgotten_with_the_next_training(monkeypatch):
    modes = []
    monkeypatch.setattr(Exchange, "divide", lambda *_: modes.append(division("parallel_mode")))
    for wrap in (divided, nn.SequentialCell):
        net = nn.Dense(4, 4)
        optimizer = nn.SGD(net.trainable_params(), 0.1)
        StepMonitor(Config(enable=1)).attach(wrap(nn.TrainOneStepCell(net, optimizer)), optimizer)
    assert modes == ["semi_auto_parallel", "stand_alone"]


@pytest.mark.parametrize("search", ["recursive_programming", "dynamic_programming", "sharding_propagation"])
def test_where_mindspore_searches_for_strategies_no_place_inside_is_checked_and_that_is_said(search, enabled):
    ms.set_auto_parallel_context(parallel_mode="auto_parallel", search_mode=search)
    monitor = StepMonitor(Config(protection="document", enable=1))
    net = nn.SequentialCell([nn.Dense(4, 4), nn.LayerNorm((4,))])
    net[0].gather = GatherASD()
    monitor.attach(net, nn.Adam(net.trainable_params(), 1e-3))
    assert not list(sites_of(net))
    assert "NPU_ASD_ENABLE" in monitor.monitor.protections.missing
