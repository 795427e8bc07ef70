"""Operators with a check on an input: the contract of ASDBase, and the ready-made ones."""

import copy
import pickle
from functools import cache

import mindspore as ms
import mindspore.common.dtype as mstype
import numpy as np
import pytest
from checked_nets import (
    HIDDEN,
    SLOW,
    VOCABULARY,
    assert_reading,
    assert_same_bits,
    fill,
    gradients,
    ids,
    readings,
    targets,
    train,
)
from mindspore import Parameter, Tensor, nn, ops
from mindspore.ops import operations as P  # noqa: N812

from asd import ConfigError
from asd.operators import ASDBase, GatherASD, LayerNormASD, RmsNormASD, enable
from asd.operators.gate import slots
from asd.operators.sensors.ready_made import _ComposedRmsNorm

pytestmark = pytest.mark.usefixtures("clean")


class SeedGatherASD(ASDBase):
    """As the feature-value detection document has it, to the letter."""

    def __init__(self, *args, **kwargs):
        super().__init__(P.Gather, *args, **kwargs)
        self.pre_val, self.min_val, self.max_val, self.cnt = self.generate_params()

    def __call__(self, input_params, input_indices, axis):
        if self.enable_check:
            input_params = self.check_op(input_params, self.pre_val, self.min_val, self.max_val, self.cnt, None)
            self.cnt += 1
        return self.op(input_params, input_indices, axis)


class GatherNet(nn.Cell):
    def __init__(self, make_gather):
        super().__init__()
        self.embedding_weight = Parameter(np.zeros((VOCABULARY, HIDDEN), np.float32), name="embedding_weight")
        self.gather = make_gather()
        self.dense = nn.Dense(HIDDEN, HIDDEN)

    def construct(self, x, y):
        return ops.mean(ops.square(self.dense(self.gather(self.embedding_weight, x, 0)) - y))


class NormNet(nn.Cell):
    """A residual block around a norm operator; `zero` shows the gradient at the norm's input."""

    def __init__(self, make_norm, outputs=3, probed=False):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.gamma = Parameter(np.ones(HIDDEN, np.float32), name="gamma")
        self.beta = Parameter(np.ones(HIDDEN, np.float32), name="beta")
        self.dense = nn.Dense(HIDDEN, HIDDEN)
        self.norm = make_norm()
        self.with_beta = outputs == 3
        self.probed = probed
        if probed:
            self.zero = Parameter(np.zeros((2, 5, HIDDEN), np.float32), name="zero")

    def construct(self, x, y):
        x = self.embedding(x)
        place = x
        if self.probed:
            place = x + self.zero
        if self.with_beta:
            normed = self.norm(place, self.gamma, self.beta)[0]
        else:
            normed = self.norm(place, self.gamma)[0]
        return ops.mean(ops.square(x + self.dense(normed) - y))


class CountingLayerNorm(SeedGatherASD):
    """A user's norm that counts as the document's example does."""

    def __init__(self, *args):
        ASDBase.__init__(self, P.LayerNorm, *args)
        self.pre_val, self.min_val, self.max_val, self.cnt = self.generate_params()


def layer_norm():
    return P.LayerNorm(2, 2)


CASES = {
    "gather of the document": (lambda: GatherNet(SeedGatherASD), lambda: GatherNet(P.Gather)),
    "gather": (lambda: GatherNet(GatherASD), lambda: GatherNet(P.Gather)),
    "layer norm": (lambda: NormNet(lambda: LayerNormASD(2, 2)), lambda: NormNet(layer_norm)),
    "rms norm": (lambda: NormNet(RmsNormASD, 2), lambda: NormNet(_ComposedRmsNorm, 2)),
}


def trained(make, mode):
    """The net, whose sites live as long as it does, and what the training made of it."""
    net = fill(make())
    style = "one step cell" if mode == "graph" else "value_and_grad"
    return net, train(net, nn.Adam(net.trainable_params(), 1e-2), style)


@cache
def bare(name, mode):
    """What a training with the bare operator comes to, made once in each mode."""
    return trained(CASES[name][1], mode)[1]


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *(("gather of the document", mode) for mode in ("graph", "pynative")),
        *((name, "pynative") for name in ("layer norm", "rms norm")),
        *(pytest.param(name, "graph", marks=SLOW) for name in ("gather", "layer norm", "rms norm")),
        pytest.param("gather", "pynative", marks=SLOW),
    ],
    indirect=["mode"],
)
def test_a_training_is_bit_equal_to_one_with_the_bare_operator_when_on(name, mode, enabled):
    _net, ours = trained(CASES[name][0], mode)
    assert len(readings()) == 1
    assert_same_bits(ours, bare(name, mode))


@pytest.mark.parametrize(
    ("name", "value", "mode"),
    [("gather of the document", "0", "graph"), ("layer norm", None, "pynative")],
    indirect=["mode"],
)
def test_when_off_there_is_no_site_and_no_bit_differs(name, value, mode, monkeypatch):
    if value is not None:
        monkeypatch.setenv("NPU_ASD_ENABLE", value)
    before = slots.table().sites()
    _net, ours = trained(CASES[name][0], mode)
    assert slots.table().sites() == before
    assert_same_bits(ours, bare(name, mode))


@pytest.mark.parametrize(("make", "mode"), [(SeedGatherASD, "graph"), (GatherASD, "pynative")], indirect=["mode"])
def test_a_gather_reports_the_gradient_of_the_table_it_gathers_from(make, mode, enabled):
    net = fill(GatherNet(make))
    gradients(net, net.trainable_params(), ids(), targets())
    bare = fill(GatherNet(P.Gather))
    (true,) = gradients(bare, [bare.embedding_weight], ids(), targets())
    assert_reading(next(iter(readings().values())), true)
    assert net.gather.cnt.asnumpy() == (make is SeedGatherASD)  # the ready-made ones leave it at 0


@pytest.mark.parametrize(
    ("checked", "bare", "outputs"),
    [
        (lambda: LayerNormASD(2, 2), layer_norm, 3),
        (lambda: CountingLayerNorm(2, 2), layer_norm, 3),
        (RmsNormASD, _ComposedRmsNorm, 2),
    ],
    ids=["layer norm", "layer norm that counts", "rms norm"],
)
def test_a_norm_reports_the_gradient_of_its_own_branch_without_the_residual(checked, bare, outputs, mode, enabled):
    net = fill(NormNet(checked, outputs))
    gradients(net, net.trainable_params(), ids(), targets())
    probed = fill(NormNet(bare, outputs, probed=True))
    probed.zero.set_data(ops.zeros_like(probed.zero))
    (true,) = gradients(probed, [probed.zero], ids(), targets())
    assert_reading(next(iter(readings().values())), true)


def test_the_count_of_the_document_counts_forward_passes_in_its_parameter(mode, enabled):
    net = fill(GatherNet(SeedGatherASD))
    count = net.gather.cnt
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 1e-3))
    for forwards in (1, 2, 3):
        step(ids(), targets()).asnumpy()
        assert count.asnumpy() == forwards
        assert net.gather.cnt is count
    net(ids(), targets()).asnumpy()
    assert count.asnumpy() == 4


def test_the_four_parameters_are_scalars_at_zero_that_are_not_trained(enabled):
    op = SeedGatherASD()
    parameters = [op.pre_val, op.min_val, op.max_val, op.cnt]
    index = parameters[0].name.rsplit("_", 1)[1]
    assert [parameter.name for parameter in parameters] == [
        f"ASD_Gather_{name}_{index}" for name in ("pre_val", "min_val", "max_val", "cnt")
    ]
    assert [parameter.dtype for parameter in parameters] == [ms.float32, ms.float32, ms.float32, ms.int32]
    assert all(parameter.asnumpy() == 0 and parameter.shape == () for parameter in parameters)
    assert not any(parameter.requires_grad for parameter in parameters)
    assert SeedGatherASD().cnt.name == f"ASD_Gather_cnt_{int(index) + 1}"


def test_the_wrapper_has_the_operators_attributes_and_is_returned_where_calls_return_the_operator(enabled):
    for op in (SeedGatherASD(), GatherASD(), LayerNormASD(), RmsNormASD()):
        assert op.shard(((1, 1), (1,))) is op
    op = SeedGatherASD()
    assert op.add_prim_attr("colour", "red").add_prim_attr("size", 3) is op
    assert op.op.attrs["colour"] == "red"
    assert op.set_prim_instance_name("mine") is op
    assert op.shard(((1, 1), (1,))).add_prim_attr("size", 4) is op
    assert op.name == "Gather"
    assert op.attrs is not None
    assert repr(op) == repr(op.op)
    with pytest.raises(AttributeError, match="no_such_attribute"):
        _ = op.no_such_attribute


def test_copying_and_probing_for_pickle_come_to_an_end(enabled):
    op = SeedGatherASD()
    twin = copy.copy(op)
    assert twin.op is op.op
    assert type(twin) is SeedGatherASD
    blank = SeedGatherASD.__new__(SeedGatherASD)
    with pytest.raises(AttributeError, match="has no attribute 'op'"):
        _ = blank.op
    with pytest.raises(AttributeError, match="__getstate_extra__"):
        _ = op.__getstate_extra__
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        pickle.dumps(op)


def test_an_operator_for_which_no_slot_is_free_checks_nothing_and_that_is_said_once(enabled, monkeypatch, caplog):
    monkeypatch.setattr(slots.table()._sites, "capacity", 0)
    assert not any(op.enable_check for op in (SeedGatherASD(), SeedGatherASD()))
    assert [record.module for record in caplog.records].count("boundary") == 1  # each living monitor has it too


def test_a_users_own_norm_wraps_the_operator_also_where_ours_has_replaced_it(enabled):
    enable()
    assert (type((norm := ASDBase(P.LayerNorm)).op).__name__, norm.name_prefix) == ("LayerNorm", "ASD_LayerNorm")


class Check(nn.Cell):
    def __init__(self, scale=None, *, held=True):
        super().__init__()
        self.op, self.scale = SeedGatherASD(), scale
        names = ("pre_val", "min_val", "max_val", "cnt") if held else ()
        self.state = [getattr(self.op, name) for name in names] or [None] * 4

    def construct(self, x):
        return self.op.check_op(x, *self.state, self.scale)


@pytest.mark.parametrize(
    ("given", "make_input", "error", "said"),
    [
        ({}, ids, TypeError, "not a floating-point one"),
        ({"scale": 2.0}, targets, ValueError, "check_op .* loss_scale: .* StepMonitor"),
        ({"held": False}, targets, TypeError, "check_op got None .* generate_"),
    ],
)
def test_a_call_that_can_not_be_checked_is_refused_with_one_sentence(given, make_input, error, said, mode, enabled):
    with pytest.raises(error, match=said):
        Check(**given)(make_input()).asnumpy()


class Headless(ASDBase):
    def __init__(self):
        self.pre_val, self.min_val, self.max_val, self.cnt = self.generate_params()


def test_what_is_easily_forgotten_is_refused_with_one_sentence(enabled):
    with pytest.raises(ConfigError, match="^cls has the value 'Gather'"):
        ASDBase(P.Gather())
    with pytest.raises(AttributeError, match=r"^Headless .* super\(\).__init__ first"):
        Headless()


@pytest.mark.parametrize("dtype", [mstype.float32, mstype.float16])
@pytest.mark.parametrize("axes", [1, 2])
def test_rms_norm_equals_a_float64_reference_and_so_does_its_gradient(dtype, axes, enabled):
    generator = np.random.default_rng(axes)
    kind = ms.dtype_to_nptype(dtype)
    x, gamma, sense = (generator.normal(size=shape).astype(kind) for shape in ((3, 4, 6), (4, 6)[-axes:], (3, 4, 6)))
    eps, wide, wide_gamma, wide_sense = 1e-5, *(array.astype(np.float64) for array in (x, gamma, sense))
    over = tuple(range(-axes, 0))
    rstd = 1 / np.sqrt(np.mean(wide**2, axis=over, keepdims=True) + eps)
    true_y = wide * rstd * wide_gamma
    pulled = wide_sense * wide_gamma
    true_dx = rstd * (pulled - wide * rstd**2 * np.mean(pulled * wide, axis=over, keepdims=True))
    true_dgamma = np.sum(wide_sense * wide * rstd, axis=tuple(range(3 - axes)))
    norm_operator = RmsNormASD(eps)

    def forward(x, gamma):
        return norm_operator(x, gamma)[0]

    rtol = 1e-5 if dtype == mstype.float32 else 4e-3
    out, found_rstd = norm_operator(Tensor(x), Tensor(gamma))
    assert out.dtype == dtype
    np.testing.assert_allclose(out.asnumpy(), true_y, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(found_rstd.asnumpy(), rstd, rtol=1e-5)
    dx, dgamma = ops.GradOperation(get_all=True, sens_param=True)(forward)(Tensor(x), Tensor(gamma), Tensor(sense))
    np.testing.assert_allclose(dx.asnumpy(), true_dx, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(dgamma.asnumpy(), true_dgamma, rtol=rtol, atol=3 * rtol)
    assert_reading(next(iter(readings().values())), dx.asnumpy())
