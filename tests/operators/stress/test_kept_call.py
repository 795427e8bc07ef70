"""The call of an operator whose result was wrong: kept with the alarm, and computed again without the training."""

import json

import mindspore as ms
import numpy as np
import pytest
from checked_nets import trained
from mindspore import nn
from struck_calls import strike
from test_checked_convolution import One as Convolution
from test_checked_lookup import One as Lookup
from test_checked_norm import Block, StruckNorm
from test_checked_softmax import One as Softmax
from test_checksum import _Wrong as WrongProduct

from asd import AnomalyDetected, Config
from asd.cli import main
from asd.errors import StateError
from asd.exporters.bundle.sink import open_evidence
from asd.operators import Checksum, StepMonitor
from asd.operators.stress.kept_call import KeptCall, kept_calls
from asd.origin import Origin

pytestmark = pytest.mark.usefixtures("clean")
BY = 0.05


class Product(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.dense = nn.Dense(8, 8), nn.Dense(8, 4)

    def construct(self, x):
        return self.dense(self.first(x)).square().mean()


class Shared(nn.Cell):
    """Channels and root mean squares that are normalized."""

    def __init__(self):
        super().__init__()
        self.dense, self.norm = nn.Dense(8, 8), nn.GroupNorm(2, 4)

    def construct(self, x):
        return (self.norm(self.dense(x).reshape((3, 4, 2, 2))).reshape((6, 8)) * x).square().mean()


def strike_product(net, part):
    parts, name = net.dense.matmul.product.parts, {"": "multiply", "_dx": "multiply_dx", "_dw": "multiply_dw"}[part]
    setattr(parts, name, WrongProduct(getattr(parts, name), BY))


def strike_norm(cell, part):
    cell.checked.norm = StruckNorm(cell.checked.norm, part, BY)


WRONG = {
    "product": (Product, strike_product, ("", "_dx", "_dw")),
    "convolution": (Convolution, lambda net, part: strike(net.wide.conv2d.checked.call, part, BY), ("", "_dx", "_dw")),
    "lookup": (Lookup, lambda net, part: strike(net.embedding.gather.checked.call, part, BY), ("", "_dx")),
    "softmax": (Softmax, lambda net, part: strike(net.gate.softmax.checked.call, part, BY, unary=True), ("", "_dx")),
    "norm": (Block, lambda net, part: strike_norm(net.norm.layer_norm, part), ("", "_dx", "_dw")),
}
CASES = [(kind, part) for kind, (*_, parts) in WRONG.items() for part in parts]


def bundle_of(run_dir, kind, part, **settings):
    """The evidence of a training whose operator was wrong in its first step."""
    make, hit, _ = WRONG[kind]
    config = Config(protection="document", enable=1, run_dir=str(run_dir), **settings)
    sink = open_evidence(config, Origin("run1", 0, "node7", "CPU:0"))
    monitor = StepMonitor(config, sinks=[sink], checksum=Checksum(every=1))
    with pytest.raises(AnomalyDetected) as caught:
        trained(make(), monitor, 1, before=lambda net: hit(net, part))
    assert caught.value.event.checkpoint.endswith(f"checksum{part}")
    (folder,) = run_dir.glob("evidence/*/rank0-step1")
    return folder


@pytest.mark.parametrize(
    ("way", "kind", "part"), [("graph", *case) for case in CASES] + [("pynative", "product", "_dw")]
)
def test_an_operator_that_was_wrong_once_is_right_when_it_is_computed_again(tmp_path, way, kind, part):
    ms.set_context(mode=ms.GRAPH_MODE if way == "graph" else ms.PYNATIVE_MODE)
    (dump,) = kept_calls(bundle_of(tmp_path, kind, part))
    call = KeptCall(dump)
    assert not call.answer(call.kept).right
    if (kind, part) == ("softmax", "_dx"):
        rtol = 1e-5  # its input is not known to the bit
    else:
        rtol = 1e-6
    now = call.compute()
    assert call.answer(now)[:2] == (True, ""), call.name
    wrong = ~np.isclose(now, call.kept, rtol=rtol, atol=1e-7)
    assert np.flatnonzero(wrong).tolist() == [5]
    assert call.kept.reshape(-1)[5] - now.reshape(-1)[5] == pytest.approx(BY, rel=1e-3)
    assert call.compute().tobytes() == now.tobytes()


def test_recheck_says_how_often_the_device_computed_it_and_what_was_kept(tmp_path, capsys):
    bundle = bundle_of(tmp_path, "product", "_dx")
    assert main(["recheck", str(bundle), "--seconds", "0", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["times"], told["otherwise"], told["right"], told["failed"]) == (2, 0, True, False)
    assert (told["kept_differs"], told["first"], told["elements"]) == (1, [0, 5], 48)
    assert told["kept"] - told["now"] == pytest.approx(BY, rel=1e-3)
    assert main(["recheck", str(tmp_path), "--seconds", "0"]) == 0
    said = capsys.readouterr().out
    assert "the bits were the same each time" in said
    assert "differs in 1 of 48 elements, first at [0, 5]" in said


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        (lambda result, time: result, 1, "wrong by float64"),
        (lambda result, time: result if time == 3 else None, 1, "1 times the bits were others than usual"),
    ],
    ids=["always", "once"],
)
def test_recheck_names_a_device_that_computes_it_wrongly(tmp_path, capsys, monkeypatch, spoil, code, words):
    bundle = bundle_of(tmp_path, "product", "")
    compute, times = KeptCall.compute, iter(range(1, 1 << 30))

    def wrong(call):
        spoilt = spoil(call.kept, next(times))
        return compute(call) if spoilt is None else spoilt

    monkeypatch.setattr(KeptCall, "compute", wrong)
    assert main(["recheck", str(bundle), "--seconds", "0.2"]) == code
    assert words in capsys.readouterr().out


def test_a_stress_test_computes_what_the_alarms_kept_and_finds_a_device_that_does_so_wrongly(
    tmp_path, capsys, monkeypatch
):
    bundle_of(tmp_path, "product", "_dw")
    command = ["stress", "--device", "CPU:0", "--seconds", "0", "--evidence", str(tmp_path), "--json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["repetitions"]["Primitive.matmul.MatMul.0.forward"] == 2
    monkeypatch.setattr(KeptCall, "compute", lambda call: call.kept)
    assert main(command) == 1
    finding = json.loads(capsys.readouterr().out)["finding"]
    assert (finding["workload"], finding["at"], finding["against"]) == (
        "Primitive.matmul.MatMul.0.forward", [0, 5], "float64",
    )  # fmt: skip


def test_a_call_that_is_larger_than_the_evidence_may_be_is_not_kept_and_the_page_says_so(tmp_path):
    bundle = bundle_of(tmp_path, "product", "", evidence_mb=0)
    assert kept_calls(bundle) == []
    assert "what an operator was given is kept if it has no more than ASD_EVIDENCE_MB" in " ".join(
        (bundle / "README.txt").read_text().split()
    )


@pytest.mark.parametrize("content", ["", "[]", '{"task": "tensor", "data": {}}', '{"task": "tensor"'])
def test_what_is_no_kept_call_is_a_sentence(tmp_path, capsys, content):
    (tmp_path / "operator").mkdir()
    (tmp_path / "operator" / "dump.json").write_text(content)
    assert main(["recheck", str(tmp_path), "--seconds", "0"]) == 3
    said = capsys.readouterr()
    assert "Traceback" not in said.out + said.err
    assert "dump.json" in said.out


def test_a_folder_that_kept_nothing_is_wrong_usage(tmp_path, capsys):
    assert main(["recheck", str(tmp_path)]) == 2
    assert "no call of a wrong operator was kept there" in capsys.readouterr().err


def test_a_link_among_the_evidence_is_not_followed(tmp_path):
    kept = bundle_of(tmp_path / "own", "product", "")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "operator").symlink_to(kept / "operator")
    assert kept_calls(tmp_path / "other") == []


def test_a_dump_of_several_calls_is_refused(tmp_path):
    data = {f"Mint.mul.{number}.forward": {"input_args": [], "output": []} for number in range(2)}
    (tmp_path / "dump.json").write_text(json.dumps({"task": "tensor", "framework": "mindspore", "data": data}))
    with pytest.raises(StateError, match="has 2 calls, and one is needed"):
        KeptCall(tmp_path / "dump.json")
