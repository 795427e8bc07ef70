"""The first wrong operator is named by the order in which things were computed, not by the order in the file."""

import numpy as np
import pytest

from asd.dumps.formats.dump_folder import computed_order
from tests.asd.dumps.dumps import HERE, DumpWriter, compared, noise, outcome_of

A, B = "Cell.fc1.Dense", "Cell.head.Dense"


def parted(tmp_path, write, **options):
    """Where a run parts from a trusted one; `write` gets a writer and whether it is the wrong run."""
    return outcome_of(tmp_path, write, level="L0", md5=True, **options).pairs[0].divergence


def test_a_module_comes_after_the_calls_inside_it_and_calls_inside_one_another_are_not_lost():
    inner = "Primitive.matmul.MatMul.0.backward"
    names = [f"{A}.parameters_grad.0", f"{A}.backward.0", inner]
    assert computed_order(names, {inner: f"{A}.backward.0"}) == [inner, f"{A}.backward.0", f"{A}.parameters_grad.0"]
    assert computed_order(["a", "b", "c"], {"a": "b", "b": "a"}) == ["c", "a", "b"]
    assert computed_order([f"{A}.parameters_grad.0", "a"]) == ["a", f"{A}.parameters_grad.0"]


def test_an_operator_that_gave_a_wrong_gradient_of_a_weight_is_named_and_not_its_module(tmp_path):
    inner = "Primitive.matmul.MatMul.0.backward"

    def write(dump, wrong):
        x, w, g = noise(4, 8), noise(8, 8, seed=1), noise(4, 8, seed=2)
        of_weight = x.T @ g * (2 if wrong else 1)
        dump.parameters_grad(f"{A}.parameters_grad.0", {"weight": of_weight})
        dump.forward(f"{A}.forward.0", [x], [x @ w], {"weight": w}).backward(f"{A}.backward.0", [g], [g @ w.T])
        dump.forward(inner.replace("backward", "forward"), [x, w], [x @ w], parent=f"{A}.forward.0")
        dump.backward(inner, [g], [g @ w.T, of_weight], parent=f"{A}.backward.0")

    found = parted(tmp_path, write)
    assert (found.call, found.kind) == (inner, "operator")


def several(tmp_path, wrong_of):
    """The outcome of two steps of two ranks; `wrong_of` says by step and rank what differs: a weight or a gradient."""
    for side in ("golden", "run"):
        for step, rank in ((0, 0), (0, 1), (1, 0), (1, 1)):
            what = wrong_of.get((step, rank)) if side == "run" else None
            dump = DumpWriter(tmp_path / side / f"step{step}" / f"rank{rank}", level="L0", md5=True)
            x, w = noise(4, 8, seed=rank), noise(8, 8, seed=1) + (what == "weight")
            dump.forward(f"{A}.forward.0", [x], [x @ w], {"weight": w}).backward(f"{A}.backward.0", [x], [x @ w.T])
            dump.parameters_grad(f"{A}.parameters_grad.0", {"weight": x.T @ x + (what == "gradient")}).write()
    return compared(tmp_path)


def test_of_a_weight_that_is_wrong_after_a_step_that_agrees_the_optimizer_has_to_be_known(tmp_path):
    first = several(tmp_path, {(1, 0): "weight"}).first
    assert (first.step, first.rank, first.divergence.kind) == (1, 0, "rows")
    assert first.divergence.rows == (f"{A}.forward.0.parameters.weight",)


@pytest.mark.parametrize(("ranks", "kind"), [((0, 1), "rows"), ((1,), "module")])
def test_a_gradient_that_is_wrong_on_all_ranks_alike_names_nobody(tmp_path, ranks, kind):
    first = several(tmp_path, {(0, rank): "gradient" for rank in ranks}).first
    assert first.divergence.kind == kind
    assert ("the ranks 0, 1 part alike" in first.divergence.reason) == (kind == "rows")


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

    found = parted(tmp_path, write, task=task)
    assert (found.call, found.rows[0]) == (f"{A}.forward.0", f"{A}.forward.0.parameters.weight")
    assert found.kind == "weight"


def test_a_backward_call_that_stands_before_the_one_that_gave_it_its_input_is_not_blamed(tmp_path):
    def write(dump, wrong):
        x, g, h = noise(4, 8), noise(4, 8, seed=1), noise(4, 8, seed=2)
        dump.forward(f"{A}.forward.0", [x], [g]).forward(f"{B}.forward.0", [g], [h])
        given = h * (2 if wrong else 1)
        dump.backward(f"{A}.backward.0", [given], [given + x]).backward(f"{B}.backward.0", [g], [given])

    found = parted(tmp_path, write)
    assert (found.call, found.kind) == (f"{B}.backward.0", "module")


@pytest.mark.parametrize(("weight_is_wrong", "kind"), [(True, "weight"), (False, "module")])
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
        dump.forward(linear, [x], [np.tanh(h)], {"weight": w})

    found = parted(tmp_path, write)
    assert (found.call, found.kind) == (linear, kind)


@pytest.mark.parametrize("kind", ["unread", "taken", "only"])
def test_a_further_output_that_nothing_takes_accuses_nobody_and_is_told(tmp_path, kind):
    """A kernel of MindSpore leaves the running mean among its outputs unwritten."""

    def write(dump, wrong):
        x, y = noise(4, 8), noise(4, 8, seed=1) * (2 if wrong and kind == "only" else 1)
        left = np.full(8, float(wrong), np.float32)
        dump.forward("Primitive.bn_train.BatchNorm.0.forward", [x], [y, left, np.zeros(8, np.float32)])
        dump.forward("Functional.relu.0.forward", [y, left] if kind == "taken" else [y], [np.maximum(y, 0)])

    found = parted(tmp_path, write)
    if kind == "unread":
        assert found is None
    else:
        assert (found.call, found.kind) == ("Primitive.bn_train.BatchNorm.0.forward", "operator")


def between_tools(tmp_path, write, steps=1):
    """The outcome for the dumps of two tools; `write` gets a writer, how far it is off, and the step."""
    for side, tool in (("golden", "msprobe"), ("run", "mindspore-asd")):
        for step in range(steps):
            dump = DumpWriter(tmp_path / side / f"step{step}" / "rank0", head={**HERE, "tool": tool})
            write(dump, side == "run", step)
            dump.write()
    return compared(tmp_path)


@pytest.mark.parametrize("fault", [0.0, 1.0])
def test_a_module_of_float32_that_computes_in_float16_is_allowed_what_is_allowed_inside_it(tmp_path, fault):
    inner, outer = "Cell.outer.inner.Dense.forward.0", "Cell.outer.Outer.forward.0"

    def write(dump, wrong, _):
        x = noise(8, 8).astype(np.float16)
        y = (x * np.float16(1 + 2**-10 * wrong)).astype(np.float16)
        out = y.astype(np.float32)
        out[2, 2] += fault * wrong
        dump.forward(inner, [x], [y], parent=outer)
        dump.forward(outer, [np.arange(8)], [out])

    found = between_tools(tmp_path, write).pairs[0].divergence
    assert (found and found.call) == (outer if fault else None)


@pytest.mark.parametrize(("off", "is_sound"), [(1e-4, True), (1e-2, False)])
def test_what_a_call_of_one_input_gives_differs_by_that_inputs_own_size_however_large_it_is(tmp_path, off, is_sound):
    def write(dump, wrong, _):
        x = np.abs(noise(4, 8)) / 1e6 + 1e-6
        given = (x * (1 + 5e-6 * wrong)).astype(np.float32)
        dump.forward("Functional.relu.0.forward", [x + 1], [x + 1])
        dump.forward("Functional.reciprocal.0.forward", [given], [(1 / x * (1 + off * wrong)).astype(np.float32)])

    outcome = between_tools(tmp_path, write)
    assert (outcome.first is None) is is_sound
    assert is_sound or outcome.first.divergence.call == "Functional.reciprocal.0.forward"


@pytest.mark.parametrize(("before", "off", "is_sound"), [(5e-6, 1e-4, True), (5e-6, 1e-2, False), (0.0, 1e-4, False)])
def test_a_weight_differs_by_what_was_rounding_in_the_step_before_enlarged_and_no_more(tmp_path, before, off, is_sound):
    def write(dump, wrong, step):
        x, w = noise(4, 8), noise(8, 8, seed=1)
        y = (x @ w * (1 + before * wrong)).astype(np.float32) if step == 0 else x @ w
        w = (w * (1 + off * wrong)).astype(np.float32) if step else w
        dump.forward("Cell.fc.Dense.forward.0", [x], [y], {"weight": w})

    outcome = between_tools(tmp_path, write, steps=2)
    assert (outcome.first is None) is is_sound
    assert is_sound or outcome.first.step == 1
    assert is_sound or outcome.first.divergence.rows == ("Cell.fc.Dense.forward.0.parameters.weight",)


@pytest.mark.parametrize("is_handed_on", [True, False])
def test_what_comes_to_nothing_differs_where_it_is_taken_as_it_did_where_it_was_given(tmp_path, is_handed_on):
    def write(dump, wrong, _):
        gradient = noise(4, 8)
        total = np.full(1, 3.7e-8 if wrong else -3.7e-9, np.float32)
        taken = total if is_handed_on or not wrong else total * 2
        dump.forward("Functional.tanh.0.forward", [gradient + 1], [gradient])
        dump.backward("Tensor.__add__.0.backward", [gradient], [gradient, total])
        dump.backward("Functional.mean.0.backward", [taken], [np.full((4, 8), taken[0] / 32)])

    assert (between_tools(tmp_path, write).first is None) is is_handed_on
