"""Updates computed again: what each optimizer really does is right, and one element that is off is not."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

from asd.operators.measure.state.formulas import Elements, formula_of, rate_of, wrong

OPTIMIZERS = {
    "Adam": lambda weights: nn.Adam(weights, 1e-3, weight_decay=0.01, loss_scale=8.0),
    "AdamWeightDecay": lambda weights: nn.AdamWeightDecay(weights, 1e-3, weight_decay=0.01),
    "Momentum": lambda weights: nn.Momentum(weights, 1e-2, 0.9, weight_decay=1e-3),
    "SGD": lambda weights: nn.SGD(weights, 1e-2, momentum=0.9),
    "SGD without momentum": lambda weights: nn.SGD(weights, 1e-2),
    "a schedule": lambda weights: nn.Adam(weights, nn.cosine_decay_lr(1e-4, 1e-2, 100, 10, 8)),
}


def values(tensors):
    return {each.name: each.asnumpy().reshape(-1).astype(np.float64) for each in tensors}


def updates(make, count=12):
    """The optimizer's formula and, of each update of a weight of 256 elements, what it was made of."""
    ms.set_context(mode=1)
    random = np.random.default_rng(3)
    weight = Parameter(random.standard_normal(256).astype(np.float32), name="w")
    optimizer = make([weight])
    formula = formula_of(optimizer)
    found = []
    for _ in range(count):
        gradient = random.standard_normal(256).astype(np.float32) * 10.0 ** random.integers(-3, 3)
        before = values(optimizer.get_parameters())
        optimizer((Tensor(gradient),))
        after = values(optimizer.get_parameters())
        moments, new = (
            {name.removesuffix(".w"): each for name, each in every.items() if name.endswith(".w")}
            for every in (before, after)
        )
        found.append(Elements(gradient.astype(np.float64), before["w"], moments, after["w"], new))
    return formula, found


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_an_optimizer_does_is_right_and_what_is_off_by_a_fiftieth_of_a_step_is_not(name):
    formula, found = updates(OPTIMIZERS[name])
    for elements in found:
        decay = formula.decay[0]
        rate = rate_of(formula, [(elements, decay)])
        assert wrong(formula, elements, decay, rate) == ""
        off = elements.new_weight.copy()
        at = int(np.argmax(np.abs(elements.weight - elements.new_weight)))
        off[at] -= 0.02 * (elements.weight[at] - elements.new_weight[at])
        assert wrong(formula, elements._replace(new_weight=off), decay, rate) == "weight"
        for moment, values in elements.new_moments.items():
            if moment in formula.moments(elements, elements.gradient):
                off = {**elements.new_moments, moment: np.where(np.arange(256) == at, 1.001 * values, values)}
                assert wrong(formula, elements._replace(new_moments=off), decay, np.nan) == moment


def test_the_rate_of_a_step_is_that_of_most_of_its_elements():
    formula, found = updates(OPTIMIZERS["Momentum"])
    elements = found[-1]
    broken = elements.new_weight.copy()
    broken[:64] = 0.0
    rate = rate_of(formula, [(elements._replace(new_weight=broken), 1e-3)])
    assert rate == pytest.approx(1e-2, rel=1e-3)


def test_what_is_not_known_is_not_computed_again():
    weights = [Parameter(np.ones(8, np.float32), name="w")]

    class Own(nn.Adam):
        """It may do anything now and then."""

    for optimizer in (
        nn.Lamb(weights, 1e-3), nn.Adam(weights, 1e-3, use_nesterov=True), Own(weights, 1e-3),
        nn.SGD(weights, 1e-3, momentum=0.9, nesterov=True),
    ):  # fmt: skip
        assert formula_of(optimizer) is None
