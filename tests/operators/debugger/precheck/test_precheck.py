"""The pre-check of real calls: right ones pass, one wrong element is an error, what can't be checked says why."""

import csv
import json
import signal

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, mint, nn, ops
from prechecked_calls import Recorder

from asd.cli import main
from asd.operators import PrecisionDebugger
from asd.operators.debugger.precheck.arguments import NotCheckable
from asd.operators.debugger.precheck.lookup import find

pytestmark = pytest.mark.usefixtures("clean")
LINE = ["-f", "mindspore", "run_ut", "-api_info"]  # as the documents type it


def random(*shape, dtype=ms.float32, seed=0):
    return Tensor(np.random.default_rng(seed).normal(size=shape), dtype)


def record(folder, task="tensor"):
    """Calls of each kind."""
    x, y, w = random(4, 6), random(4, 6, seed=1), random(6, 5, seed=2)
    made = Recorder(folder, task)
    made.call("Mint.add.0", mint.add, x, y, alpha=0.5)
    made.call("Mint.mul.0", mint.mul, x, 0.25)
    made.call("Mint.matmul.0", mint.matmul, x, w)
    made.call("MintFunctional.softmax.0", mint.nn.functional.softmax, x, -1)
    made.call("Functional.gelu.0", ops.gelu, x, approximate="tanh")
    made.call("Functional.conv2d.0", ops.conv2d, random(2, 3, 6, 6), random(4, 3, 3, 3))
    made.call("Functional.exp.0", ops.exp, x.astype(ms.float16))
    made.call("Tensor.__truediv__.0", Tensor.__truediv__, x, 3.0)
    made.call("Tensor.__getitem__.0", Tensor.__getitem__, x, slice(1, 3))
    made.call("Tensor.astype.0", lambda a: a.astype(ms.float16), x, backward=False)
    made.data["Tensor.astype.0.forward"]["input_args"].append({"type": "mindspore.dtype", "value": "Float16"})
    made.call("Tensor.__gt__.0", Tensor.__gt__, x, 0, backward=False)
    primitive = ops.MatMul(transpose_b=True)
    given = {"name": "MatMul", "transpose_a": False, "transpose_b": True}
    made.call("Primitive.mm.MatMul.0", lambda a, b: primitive(a, b), x, y, attributes=given)
    settings = {"begin_norm_axis": -1, "begin_params_axis": -1, "epsilon": 1e-5}
    norm = ops.LayerNorm(**settings)
    given, name = {"name": "LayerNorm", **settings}, "Primitive.norm.LayerNorm.0"
    weights = random(6, seed=3), random(6, seed=4)
    made.call(name, lambda a, b, c: norm(a, b, c), x, *weights, backward=False, attributes=given)
    return made


def check(path, capsys, *options):
    """What the command says, its results by API, and its details by output."""
    assert main([*LINE, str(path), "-o", str(path.parent / "out"), "--json", *options]) == 0
    facts = json.loads(capsys.readouterr().out)
    tables = []
    for key in ("result", "details"):
        with open(facts[key], encoding="utf-8-sig", newline="") as file:
            tables.append({row["API Name"]: row for row in csv.DictReader(file)})
    return facts, *tables


@pytest.mark.parametrize("rule", ["rounding", "strict"])
@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_right_calls_pass_forward_and_backward(tmp_path, capsys, task, rule):
    path = record(tmp_path / "dump", task).write()
    limit = ("--abs_limit", "0.01") if rule == "rounding" else ("--rule", rule)  # float16 is that coarse
    facts, result, details = check(path, capsys, *limit)
    assert [(name, row["Message"]) for name, row in result.items() if row["Forward Test Success"] != "pass"] == []
    assert {row["Backward Test Success"] for row in result.values()} == {"pass", ""}
    assert (facts["calls"], facts["pass"], facts["error"], facts["skip"]) == (13, 13, 0, 0)
    assert details["Mint.matmul.0.forward.output.0"]["Bench Dtype"] == "Float64"
    assert details["Mint.matmul.0.forward.output.0"]["Shape"] == "(4, 5)"
    assert details["Mint.matmul.0.backward.output.1"]["Status"] == "pass"
    assert float(details["Mint.matmul.0.forward.output.0"]["Cosine"]) > 0.999999


def test_one_wrong_element_of_a_dumped_output_is_an_error_that_has_passed(tmp_path, capsys):
    path = record(tmp_path / "dump").write()
    wrong = path.parent / "dump_tensor_data" / "Mint.matmul.0.backward.output.1.npy"
    array = np.load(wrong)
    array[2, 3] += 0.01
    np.save(wrong, array)
    facts, result, details = check(path, capsys, "--abs_limit", "0.005")
    row = details["Mint.matmul.0.backward.output.1"]
    assert [each["name"] for each in facts["errors"]] == ["Mint.matmul.0"]
    assert (result["Mint.matmul.0"]["Forward Test Success"], row["Status"]) == ("pass", "error")
    assert result["Mint.matmul.0"]["Backward Test Success"] == "error"
    assert float(row["MaxAbsErr"]) == pytest.approx(0.01, rel=1e-3)
    assert row["Message"].endswith("it is right")


def test_one_unit_of_a_hundred_in_the_last_place_is_an_error_under_the_strict_rule_alone(tmp_path, capsys):
    path = record(tmp_path / "dump").write()
    file = path.parent / "dump_tensor_data" / "Mint.add.0.forward.output.0.npy"
    array = np.load(file)
    flat = array.reshape(-1).view(np.int32)
    flat[np.abs(array).argmax()] += 100
    np.save(file, array)
    _, seed, _ = check(path, capsys)
    assert seed["Mint.add.0"]["Forward Test Success"] == "pass"
    _, strict, _ = check(path, capsys, "--rule", "strict")
    assert strict["Mint.add.0"]["Forward Test Success"] == "error"


def test_an_api_whose_kernel_is_not_here_is_still_checked_by_its_dumped_output(tmp_path, capsys):
    x = random(4, 6)
    made = Recorder(tmp_path / "dump")
    made.call("MintFunctional.gelu.0", None, x, output=ops.gelu(x, approximate="none"), backward=False)
    made.call("MintFunctional.gelu.1", None, x, output=ops.gelu(x, approximate="none") + 0.5, backward=False)
    values, indices = ops.sort(x, axis=-1)
    made.call("Mint.sort.0", None, x, output=(values, indices), backward=False)
    made.call("MintFunctional.layer_norm.0", None, x, [6], output=nn.LayerNorm((6,), epsilon=1e-5)(x), backward=False)
    made.call("MintFunctional.log_softmax.0", None, x, dim=-1, output=ops.log_softmax(x, -1), backward=False)
    made.call("Mint.logsumexp.0", None, x, 1, output=ops.logsumexp(x, 1), backward=False)
    made.call("Mint.std.0", None, x, output=Tensor(np.std(x.asnumpy(), ddof=1)), backward=False)
    made.call("Mint.norm.0", None, x, output=Tensor(np.linalg.norm(x.asnumpy())), backward=False)
    made.call("Mint.tril.0", None, x, output=Tensor(np.tril(x.asnumpy())), backward=False)
    made.call("Mint.cumsum.0", None, x, 0, output=ops.cumsum(x, 0), backward=False)
    _, result, _ = check(made.write(), capsys)
    assert result["MintFunctional.gelu.1"]["Forward Test Success"] == "error"
    assert [name for name, row in result.items() if row["Forward Test Success"] != "pass"] == ["MintFunctional.gelu.1"]
    assert "only the dumped output is checked" in result["Mint.sort.0"]["Message"]


def test_an_interrupt_ends_the_command_at_once_as_within_mindspore_it_would_abort_it(tmp_path, capsys):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    check(Recorder(tmp_path / "dump").write(), capsys)
    assert signal.signal(signal.SIGINT, signal.default_int_handler) is not signal.default_int_handler


def test_a_loss_has_a_reference_of_its_own(tmp_path, capsys):
    labels, loss = Tensor([1, 0, 4], ms.int32), ops.SparseSoftmaxCrossEntropyWithLogits()
    made = Recorder(tmp_path / "dump")
    name = "SparseSoftmaxCrossEntropyWithLogits"
    given = {"name": name, "is_grad": False}
    made.call(f"Primitive.loss.{name}.0", lambda a, b: loss(a, b), random(3, 5), labels, attributes=given)
    _, result, _ = check(made.write(), capsys)
    assert [(name, row["Message"]) for name, row in result.items() if row["Forward Test Success"] != "pass"] == []
    assert {row["Backward Test Success"] for row in result.values()} == {"pass"}


def test_a_square_has_a_gradient_for_each_of_its_arguments(tmp_path, capsys):
    x = random(4, 6)
    made = Recorder(tmp_path / "dump")
    made.call("Mint.mul.0", mint.mul, x, x, backward=False)
    made.data["Mint.mul.0.backward"] = {
        "input": [made.tensor(ops.ones_like(x), "g")],
        "output": [made.tensor(x, "d"), made.tensor(x, "e")],
    }
    _, result, _ = check(made.write(), capsys)
    assert result["Mint.mul.0"]["Backward Test Success"] == "pass"


class Block(nn.Cell):
    """Modules, operators with several outputs, functions of all three kinds, one type within another."""

    def __init__(self):
        super().__init__()
        self.emb, self.norm, self.fc, self.act = nn.Embedding(9, 6), nn.LayerNorm((6,)), nn.Dense(6, 6), nn.GELU()
        self.mm, self.sm = ops.MatMul(transpose_b=True), nn.Softmax(axis=0)

    def construct(self, ids):
        x = self.emb(ids)
        x = mint.add(x, self.act(self.fc(self.norm(x))), alpha=0.5)
        x = ops.cat((self.sm(self.mm(x, x)), x * x), 1)[1:3]
        return x.astype(ms.float16).astype(ms.float32).mean()


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_every_call_of_a_dump_of_our_own_passes(tmp_path, capsys, monkeypatch, task):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"task": task, "dump_path": str(tmp_path / "d"), "level": "mix"}))
    net = Block()
    debugger = PrecisionDebugger(config_path=str(config))
    debugger.start(net)
    ms.value_and_grad(net, None, net.trainable_params())(Tensor([1, 4, 0, 2], ms.int32))[0].asnumpy()
    debugger.stop()
    facts, result, details = check(tmp_path / "d" / "step0" / "rank0" / "dump.json", capsys, "--rule", "strict")
    assert (facts["errors"], facts["skip"]) == ([], 0)
    assert {"Primitive.layer_norm.LayerNorm.0", "Primitive.mm.MatMul.0", "Tensor.__mul__.0"} <= set(result)
    assert not any(name.startswith("Cell.") for name in result)
    assert "Primitive.shape_op.Shape.0" not in result  # it gives no tensor
    assert "Primitive.layer_norm.LayerNorm.0.backward.output.0" in details


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ("Mint.rand Functional.dropout", "its result is random"),
        ("Mint.system", "no Mint API called system"),
        ("Mint.__class__", "not public"),
        ("Functional.tensordump Tensor.tofile", "does more than compute"),
        ("Primitive.x.Custom Primitive.x.PyFunc Primitive.x.AllReduce", "does more than compute"),
        ("Primitive.x.MatMul", "does not have the arguments"),
        ("Tensor.asnumpy", "no method of Tensor called asnumpy"),
        ("MintDistributed.all_reduce", "it needs the other ranks"),
        ("Os.system", "no Os API called system"),
    ],
)
def test_a_call_that_cannot_be_made_again_says_why(labels, reason):
    for label in labels.split():
        with pytest.raises(NotCheckable, match=reason):
            find(label, None)
    assert find("MintFunctional.l1_loss", None) is mint.nn.functional.l1_loss  # which its `__all__` leaves out


def test_a_skipped_call_is_never_a_pass(tmp_path, capsys):
    made = Recorder(tmp_path / "dump")
    made.call("Mint.mul.0", mint.mul, random(2, 3), 2.0, backward=False)
    made.data["Mint.mul.0.forward"]["input_args"][0]["data_name"] = "../../secret.npy"
    made.data["Mint.rand.0.forward"] = {"input_args": [{"type": "int", "value": 3}], "input_kwargs": {}, "output": []}
    facts, result, details = check(made.write(), capsys)
    assert (facts["pass"], facts["skip"], details) == (0, 2, {})
    assert result["Mint.mul.0"]["Forward Test Success"] == "SKIP"
    assert "bare name" in result["Mint.mul.0"]["Message"]


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["-api_info", "missing.json"], 2, "missing.json"),
        (["-api_info", "cut.json"], 1, "is not valid JSON"),
        (["-api_info", "torch.json"], 2, "a dump of MindSpore is needed"),
        (["-api_info", "good.json", "--abs_limit", "nan"], 2, "a number above 0 is needed"),
        (["-api_info", "good.json", "-o", "good.json"], 2, "it must be a folder"),
        (["-api_info", "good.json", "--rule", "loose"], 2, "invalid choice"),
    ],
)
def test_bad_input_ends_with_one_sentence(tmp_path, capsys, monkeypatch, options, code, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.json").write_text('{"task": "tensor", "data": {}}')
    (tmp_path / "cut.json").write_text('{"task": "tensor", "data": {"Mint.mul.0.forward": {')
    (tmp_path / "torch.json").write_text('{"task": "tensor", "framework": "pytorch", "data": {}}')
    assert main(["run_ut", *options]) == code
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert not list(tmp_path.glob("accuracy_*"))
