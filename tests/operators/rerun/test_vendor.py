"""The vendor's tools, with a stand-in for `mindspore.tools`: there is no Ascend here, and nothing was run on one."""

from types import SimpleNamespace

import mindspore as ms
import pytest
from checked_nets import batch, fill
from mindspore import nn

from asd import AnomalyDetected, Config
from asd.operators import StepMonitor
from asd.operators.rerun import audit, vendor

FIRST, EVERY = 10, 12
ON = "products of some steps, the device after an anomaly or a save"


class StandIn:
    """Notes what is called; `fails` names a tool that raises."""

    def __init__(self):
        self.calls, self.wrong, self.code, self.fails = [], False, 0, ""

    def __getattr__(self, name):
        def tool(*args):
            self.calls.append(" ".join((name, *args)))
            if name == self.fails:
                raise RuntimeError("device busy")
            return {"get_sdc_detect_result": self.wrong, "stress_detect": self.code}.get(name)

        return tool


class Training:
    """Momentum in a loop; a step is `Step(batch)`, or a `nn.TrainOneStepCell` where it is audited."""

    def __init__(self, tmp_path, *, audited=False, **options):
        self.net = fill(nn.SequentialCell(nn.Dense(8, 16), nn.LayerNorm((16,))))
        optimizer = nn.Momentum(self.net.trainable_params(), 1e-3, 0.9)
        config = Config(enable=1, run_dir=str(tmp_path), **{"on_anomaly": "skip", **options})
        self.monitor = StepMonitor(config, sinks=[])
        self.monitor.attach(self.net, optimizer)
        cell = nn.TrainOneStepCell(self.net, optimizer)
        self.number, self.factor, self.raises = 0, 1.0, False

        def run(given):
            if self.raises:
                raise KeyError("the data ended")
            return cell(given)

        self._step = self.monitor.watch_step(run, audit=audited)

    def step(self):
        given = batch(self.number) * self.factor
        self.number += 1
        events = self.monitor.step(self._step(given))
        return [(event.kind, event.checkpoint) for event in events if event.rule == "vendor"]

    def steps(self, count):
        return [found for _ in range(count) for found in self.step()]

    @property
    def told(self):
        found = self.monitor.monitor.status.protections
        return {**found["on"], **found["off"]}["vendor"]


@pytest.fixture
def tools(monkeypatch, clean):
    """The stand-in, as if this were an Ascend device whose user has set MindSpore's switch."""
    stand_in, target = StandIn(), ms.get_context
    known = SimpleNamespace(get_context=lambda key: "Ascend" if key == "device_target" else target(key), tools=stand_in)
    monkeypatch.setattr(vendor, "ms", known)
    monkeypatch.setenv("MS_SDC_DETECT_ENABLE", "1")
    monkeypatch.setattr(audit, "EVERY", EVERY)
    monkeypatch.setattr(audit, "FIRST", {"CPU": FIRST})
    monkeypatch.delenv("ASD_PROTECTION")
    return stand_in


CHECKED = ["sdc_detect_start", "sdc_detect_stop", "get_sdc_detect_result"]


def test_products_of_one_step_of_so_many_are_checked_and_a_wrong_one_accuses_the_device(tools, tmp_path):
    training = Training(tmp_path)
    assert training.steps(FIRST - 1) == tools.calls == []
    tools.wrong = True
    assert training.step() == [("anomaly", "sdc_detect")]
    assert tools.calls[:3] == CHECKED
    tools.calls, tools.wrong = [], False
    assert training.steps(EVERY) == []
    assert (tools.calls, training.told) == (CHECKED, ON)


def test_the_first_run_of_a_step_that_is_made_twice_is_checked_and_the_second_is_not(tools, tmp_path):
    training = Training(tmp_path, audited=True)
    assert training.steps(FIRST) == []
    assert tools.calls == CHECKED
    assert training.monitor.monitor.protections.on["audit"].startswith("one step of ")


def test_the_check_ends_behind_a_step_that_raised_and_where_the_training_ends(tools, tmp_path):
    training = Training(tmp_path)
    training.steps(FIRST - 1)
    training.raises = True
    with pytest.raises(KeyError):
        training.step()
    assert tools.calls == ["sdc_detect_start"]
    training.raises = False
    training.step()
    assert tools.calls == CHECKED
    training.steps(EVERY - 1)
    training.raises = True
    with pytest.raises(KeyError):
        training.step()
    training.monitor.close()
    assert tools.calls == 2 * CHECKED


def test_a_refused_step_is_made_again_with_the_check_and_the_device_is_tested_once_an_hour(tools, tmp_path):
    training = Training(tmp_path, on_anomaly="stop")
    training.steps(4)
    training.factor, tools.code = float("inf"), 2
    with pytest.raises(AnomalyDetected):
        training.step()
    assert tools.calls[:3] == CHECKED
    assert tools.calls[-1] == "stress_detect aic"


def test_behind_a_saved_checkpoint_the_device_is_tested_once_a_day(tools, tmp_path, monkeypatch):
    training = Training(tmp_path)
    tools.code = 2
    found = []
    for seconds in (0, 3600, 86399, 86400):
        monkeypatch.setattr(vendor, "time", SimpleNamespace(monotonic=lambda seconds=seconds: 1e6 + seconds))
        training.step()
        training.monitor.save_state(tmp_path / "a.ckpt")
        found.append(training.step())
    bad = [("anomaly", "stress_detect"), ("stress", "stress_detect")]
    assert found == [bad, [], [], bad]
    assert tools.calls == 2 * ["stress_detect aic"]


@pytest.mark.parametrize("name", [*CHECKED, "stress_detect"])
def test_a_tool_that_fails_ends_the_use_of_all_and_no_training(tools, tmp_path, name):
    training = Training(tmp_path)
    tools.fails = name
    training.step()
    training.monitor.save_state(tmp_path / "a.ckpt")
    assert training.steps(2 * EVERY) == []
    assert tools.calls.count(name if name != "stress_detect" else "stress_detect aic") == 1
    assert training.told == f"{name} failed: RuntimeError('device busy')"


def test_without_a_device_that_has_them_or_the_switch_nothing_is_called_which_is_said(tools, tmp_path, monkeypatch):
    monkeypatch.delenv("MS_SDC_DETECT_ENABLE")
    training = Training(tmp_path)
    training.steps(FIRST)
    assert (tools.calls, training.told) == ([], "MS_SDC_DETECT_ENABLE is not 1")
    monkeypatch.setattr(vendor, "ms", ms)
    monkeypatch.setenv("MS_SDC_DETECT_ENABLE", "1")
    training = Training(tmp_path)
    training.steps(FIRST)
    assert training.told == "on Ascend only"
