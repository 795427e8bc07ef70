"""The first wrong operator is named by the order in which things were computed, not by the order in the file."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from asd.dumps.compare.comparison import Options, compare_runs
from asd.dumps.compare.request import Request
from asd.dumps.formats.call_order import computed_order
from asd.dumps.formats.dump_folder import read_dump

SPEC = importlib.util.spec_from_file_location("dumps", Path(__file__).with_name("dumps.py"))
dumps = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(dumps)
DumpWriter = dumps.DumpWriter

A, B = "Cell.fc1.Dense", "Cell.head.Dense"


def parted(tmp_path, write, **options):
    """Where a run parts from a trusted one; `write` gets a writer and whether it is the wrong run."""
    for side in ("golden", "run"):
        write(DumpWriter(tmp_path / side, task=options.get("task", "tensor"), level="L0", md5=True), side == "run")
    request = Request(tmp_path / "run/dump.json", tmp_path / "golden/dump.json")
    return compare_runs(request, tmp_path / "out", Options()).pairs[0].divergence


def noise(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_gradients_of_parameters_come_after_the_calls_they_are_computed_in():
    names = [f"{B}.parameters_grad.0", f"{A}.parameters_grad.0", f"{A}.forward.0", f"{B}.forward.0",
             f"{B}.backward.0", f"{A}.backward.0"]  # fmt: skip
    assert computed_order(names) == [
        f"{A}.forward.0", f"{B}.forward.0", f"{B}.backward.0", f"{B}.parameters_grad.0", f"{A}.backward.0",
        f"{A}.parameters_grad.0",
    ]  # fmt: skip


def test_one_gradient_of_several_calls_comes_after_all_of_them_and_one_of_none_at_the_end():
    names = ["Cell.a.Dense.parameters_grad.0", "Cell.b.Dense.parameters_grad.0", "Cell.a.Dense.backward.1",
             "Cell.a.Dense.backward.0", "Mint.add.0.forward"]  # fmt: skip
    assert computed_order(names) == [
        "Cell.a.Dense.backward.1", "Cell.a.Dense.backward.0", "Cell.a.Dense.parameters_grad.0", "Mint.add.0.forward",
        "Cell.b.Dense.parameters_grad.0",
    ]  # fmt: skip


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_a_wrong_weight_is_named_though_all_gradients_stand_before_it_in_the_file(tmp_path, task):
    def write(dump, wrong):
        off = 5.0 if wrong else 0.0
        x, w, v = noise(4, 8), noise(8, 8, seed=1), noise(8, 8, seed=2)
        w[3, 3] += off
        h = x @ w
        dump.parameters_grad(f"{B}.parameters_grad.0", {"weight": h.T @ h})
        dump.parameters_grad(f"{A}.parameters_grad.0", {"weight": x.T @ (h @ v.T)})
        dump.forward(f"{A}.forward.0", [x], [h], {"weight": w}).forward(f"{B}.forward.0", [h], [h @ v], {"weight": v})
        dump.backward(f"{B}.backward.0", [h @ v], [h @ v @ v.T]).backward(f"{A}.backward.0", [h @ v @ v.T], [h @ w.T])
        dump.write()

    found = parted(tmp_path, write, task=task)
    assert (found.call, found.kind, found.slot) == (f"{A}.forward.0", "weight", f"{A}.forward.0.parameters.weight")


def test_a_backward_call_that_stands_before_the_one_that_gave_it_its_input_is_not_blamed(tmp_path):
    def write(dump, wrong):
        x, g, h = noise(4, 8), noise(4, 8, seed=1), noise(4, 8, seed=2)
        dump.forward(f"{A}.forward.0", [x], [g]).forward(f"{B}.forward.0", [g], [h])
        given = h * (2 if wrong else 1)
        dump.backward(f"{A}.backward.0", [given], [given + x]).backward(f"{B}.backward.0", [g], [given]).write()

    found = parted(tmp_path, write)
    assert (found.call, found.kind) == (f"{B}.backward.0", "operator")


@pytest.mark.parametrize(("weight_is_wrong", "kind"), [(True, "weight"), (False, "operator")])
def test_a_module_that_holds_its_activation_is_named_and_not_that(tmp_path, weight_is_wrong, kind):
    linear, silu = "Cell.w1.Linear.forward.0", "Cell.w1.activation.SiLU.forward.0"

    def write(dump, wrong):
        x, w = noise(4, 8), noise(8, 8, seed=1)
        dump.forward("Cell.norm.Norm.forward.0", [x + 1], [x])
        if wrong and weight_is_wrong:
            w[0, 0] += 1
        h = x @ w
        if wrong and not weight_is_wrong:
            h[1, 1] += 1
        dump.forward(silu, [h], [np.tanh(h)], parent=linear)
        dump.forward(linear, [x], [np.tanh(h)], {"weight": w}).write()

    found = parted(tmp_path, write)
    assert (found.call, found.kind) == (linear, kind)


def test_a_dump_is_read_in_the_order_of_computing(tmp_path):
    dump = DumpWriter(tmp_path, level="L0")
    dump.parameters_grad(f"{A}.parameters_grad.0", {"weight": noise(2)})
    dump.forward(f"{A}.forward.0", [noise(2)], [noise(2)])
    path = dump.write()
    assert next(iter(json.loads(path.read_text())["data"])) == f"{A}.parameters_grad.0"
    assert next(iter(read_dump(path).entries)) == f"{A}.forward.0"


def chain(dump, wrong, *, noise_of=0.0, fault=0.0, head=None):
    """Four layers forward and backward; each output is off by rounding, that of one by more."""
    draw = np.random.default_rng(9)

    def off(array):
        return (array * (1 + (noise_of if wrong else 0) * draw.standard_normal(array.shape))).astype(np.float32)

    x = noise(16, 32)
    for layer in range(4):
        w = noise(32, 32, seed=layer) / 6
        y = off(x @ w)
        if wrong and layer == 2:
            y[3, 3] += np.float32(fault)
        dump.forward(f"Cell.l{layer}.Dense.forward.0", [x], [y], {"weight": w})
        x = y
    for layer in reversed(range(4)):
        gradient = off(x @ (noise(32, 32, seed=layer) / 6).T)
        dump.backward(f"Cell.l{layer}.Dense.backward.0", [x], [gradient])
        dump.parameters_grad(f"Cell.l{layer}.Dense.parameters_grad.0", {"weight": off(gradient.T @ x)})
        x = gradient
    path = dump.write()
    if head:
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, **head}))


def outcome_of(tmp_path, heads, task="tensor", **options):
    for side, head in zip(("golden", "run"), heads, strict=True):
        chain(DumpWriter(tmp_path / side, task=task), side == "run", head=head, **options)
    request = Request(tmp_path / "run/dump.json", tmp_path / "golden/dump.json")
    return compare_runs(request, tmp_path / "out", Options())


OTHERS = [({"mode": "graph"}, {"mode": "pynative"}), ({"tool": "mindspore-asd"}, {}),
          ({"framework": "pytorch"}, {"framework": "mindspore"})]  # fmt: skip


@pytest.mark.parametrize("task", ["tensor", "statistics"])
@pytest.mark.parametrize("heads", OTHERS)
def test_healthy_runs_of_other_modes_and_tools_are_not_accused_and_what_was_rounding_is_told(tmp_path, heads, task):
    outcome = outcome_of(tmp_path, heads, task, noise_of=3e-7)
    assert outcome.first is None
    assert "was taken for rounding (limit" in outcome.sentence


@pytest.mark.parametrize("task", ["tensor", "statistics"])
@pytest.mark.parametrize("heads", OTHERS)
def test_between_other_modes_and_tools_what_rounding_does_not_explain_is_named(tmp_path, heads, task):
    found = outcome_of(tmp_path, heads, task, noise_of=3e-7, fault=5.0).pairs[0].divergence
    assert (found.call, found.kind, found.basis) == ("Cell.l2.Dense.forward.0", "operator", "rounding")
    assert "was taken for rounding (limit" in found.sentence


def test_of_one_tool_and_mode_the_last_bit_counts(tmp_path):
    heads = [{"tool": "mindspore-asd", "mode": "graph"}] * 2
    found = outcome_of(tmp_path, heads, fault=1e-6).pairs[0].divergence
    assert (found.call, found.confidence) == ("Cell.l2.Dense.forward.0", "high")


def test_where_statistics_hide_as_much_as_is_seen_nobody_is_named(tmp_path):
    found = outcome_of(tmp_path, [{}, {}], "statistics", fault=1e-5).pairs[0].divergence
    assert (found.kind, found.confidence) == ("unknown", "low")
    assert "can't be told" in found.sentence
    assert "dump tensors or CRC32s" in found.sentence
