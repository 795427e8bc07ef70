"""What `install` finds, what it leaves out and says so, and what it must not change."""

import mindspore as ms
import numpy as np
import pytest
from checked_nets import (
    HIDDEN,
    CalledTwice,
    Containers,
    Convolutions,
    Decoder,
    RmsDecoder,
    fill,
    gradients,
    ids,
    readings,
    targets,
    with_check_operators,
)
from mindspore import Tensor, amp, mint, nn

from asd import ConfigError, UnsupportedError
from asd.operators import GatherASD, LayerNormASD, install
from asd.operators.gate import slots

pytestmark = pytest.mark.usefixtures("clean")
DECODER = ["embedding", "blocks.0.norm", "blocks.1.norm", "norm_out"]


class Holder(nn.Cell):
    """Cells under names of one's own, never run."""

    def __init__(self, **cells):
        super().__init__()
        for name, cell in cells.items():
            setattr(self, name, cell)

    def construct(self, x):
        return x


def named(name, base=nn.Cell, **cells):
    """A cell whose class has that name."""
    cell = type(name, (base,), {})()
    for key, value in cells.items():
        setattr(cell, key, value)
    return cell


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (Decoder, DECODER),
        (RmsDecoder, DECODER),
        (Convolutions, ["bn", "gn"]),
        (Containers, ["embedding", "sequence.1", "cells_of_list.0"]),
        (CalledTwice, ["embedding", "norm"]),
    ],
)
def test_norms_and_embeddings_are_found_in_the_order_of_the_cells(make, names):
    installation = install(make())
    assert installation.found == names
    assert installation.left_out == []
    assert str(installation) == f"{len(names)} checkpoints: {', '.join(names)}"


def test_norms_and_embeddings_of_mint_are_found():
    net = Holder(norm=mint.nn.LayerNorm((HIDDEN,)), table=mint.nn.Embedding(5, HIDDEN), group=mint.nn.GroupNorm(2, 4))
    assert install(net).found == ["norm", "table", "group"]


BY_NAME = {
    True: "LlamaRMSNorm LayerNormExt InstanceNorm2d VocabParallelEmbedding EmbeddingLookup BertEmbeddings",
    False: "ClipGradNorm LocalNorm Norm RotaryEmbedding SinusoidalPositionEmbedding TimestepEmbedding",
}


@pytest.mark.parametrize(
    ("found", "name"), [(found, name) for found, names in BY_NAME.items() for name in names.split()]
)
def test_a_class_is_found_by_the_end_of_its_name_and_a_false_friend_left_out_with_the_reason(found, name):
    installation = install(Holder(norm=nn.LayerNorm((HIDDEN,)), it=named(name)))
    assert installation.found == (["norm", "it"] if found else ["norm"])
    for place, reason in installation.left_out:
        assert (place, reason.startswith(f"{name} is not a ")) == ("it", True)
        assert str(installation) == f"1 checkpoints: norm\nleft out it: {reason}"
    assert len(installation.left_out) == (not found)


def test_a_layer_that_only_ends_in_norm_is_left_out_for_the_norm_in_it():
    layer = named("EncoderStableLayerNorm", layer_norm=nn.LayerNorm((HIDDEN,)))
    language = named("LanguageModelEmbedding", word_embeddings=nn.Embedding(3, HIDDEN))
    installation = install(Holder(layer=layer, language=language))
    assert installation.found == ["layer.layer_norm", "language.word_embeddings"]
    assert [(place, reason.split(",")[0]) for place, reason in installation.left_out] == [
        ("layer", "EncoderStableLayerNorm contains LayerNorm"),
        ("language", "LanguageModelEmbedding contains Embedding"),
    ]
    assert [name for name, _ in install(named("StableNorm", norm=nn.LayerNorm((HIDDEN,)))).left_out] == ["StableNorm"]


def test_include_adds_cells_of_any_class_and_exclude_wins():
    with_up = [*DECODER[:2], "blocks.0.up", *DECODER[2:]]
    assert install(Decoder(), include=r"blocks\.0\.up$").found == with_up
    installation = install(Decoder(), include=["up$", "down$"], exclude=[r"^blocks\.1", "embedding"])
    assert installation.found == ["blocks.0.norm", "blocks.0.up", "blocks.0.down", "norm_out"]
    assert installation.left_out == [
        (name, "excluded") for name in ("embedding", "blocks.1.norm", "blocks.1.up", "blocks.1.down")
    ]
    assert install(Holder(it=named("RotaryEmbedding")), include="it").left_out == []


@pytest.mark.parametrize("argument", ["include", "exclude"])
def test_a_regular_expression_that_is_none_is_refused_and_nothing_is_changed(argument):
    net = Decoder()
    with pytest.raises(ConfigError, match=rf"^{argument} has the value '\(', .*regular expression.*\.$"):
        install(net, **{argument: ["norm", "("]})
    assert type(net.norm_out) is nn.LayerNorm


def test_nothing_to_check_is_one_sentence_with_what_was_left_out():
    with pytest.raises(UnsupportedError) as caught:
        install(Holder(dense=nn.Dense(2, 2), it=named("RotaryEmbedding")))
    assert all(word in str(caught.value) for word in ("Holder ", " 3 cells ", "it was left out: Rotary", "include="))


def test_wrappers_of_the_training_do_not_show_in_the_names():
    net = amp.auto_mixed_precision(Decoder(), "O2", ms.float16)
    training = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
    found = install(training).found
    assert sorted(name.replace("._backbone", "") for name in found) == sorted(DECODER)
    assert not any(name.startswith(("network", "_backbone")) for name in found)


def test_a_second_installation_finds_the_same_sites_and_adds_nothing():
    net = fill(Decoder())
    first = install(net)
    again = install(net)
    assert again.found == first.found
    assert again.sites == first.sites
    gradients(net, net.trainable_params(), ids(), targets())
    assert sorted(readings()) == sorted(DECODER)


def test_no_parameter_is_added_anywhere(tmp_path):
    net, bare = fill(Decoder()), fill(Decoder())
    install(net)
    for listing in ("get_parameters", "trainable_params", "untrainable_params"):
        assert [p.name for p in getattr(net, listing)()] == [p.name for p in getattr(bare, listing)()]
    assert list(net.parameters_dict()) == list(bare.parameters_dict())
    for one, name in ((net, "net"), (bare, "bare")):
        ms.save_checkpoint(one, str(tmp_path / f"{name}.ckpt"))
    saved = {name: ms.load_checkpoint(str(tmp_path / f"{name}.ckpt")) for name in ("net", "bare")}
    assert list(saved["net"]) == list(saved["bare"])
    assert ms.load_param_into_net(fill(Decoder(), seed=6), saved["net"]) == ([], [])


def test_cells_with_check_operators_are_named_after_their_place_and_not_tapped_twice(enabled):
    class WithOperators(Decoder):
        def __init__(self):
            with with_check_operators():
                super().__init__()
            self.embedding.gather = GatherASD()

    net = fill(WithOperators())
    names = ["embedding.gather", "blocks.0.norm.layer_norm", "blocks.1.norm.layer_norm", "norm_out.layer_norm"]
    installation = install(net)
    assert installation.found == names
    assert isinstance(net.norm_out.layer_norm, LayerNormASD)
    gradients(net, net.trainable_params(), ids(), targets())
    assert sorted(readings()) == sorted(names)


def test_check_operators_that_are_off_leave_the_cell_to_the_tap():
    with with_check_operators():
        norm = nn.LayerNorm((HIDDEN,))
    assert isinstance(norm.layer_norm, LayerNormASD)
    assert install(Holder(norm=norm)).found == ["norm"]


def test_a_cell_with_several_outputs_is_checked_at_the_first_unless_they_are_a_list(mode):
    class PairNorm(nn.Cell):
        def construct(self, x):
            return x * 2, x * 3

    class PackedNorm(nn.Cell):
        def construct(self, x):
            return [x * 7]

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.norm, self.packed_norm = PairNorm(), PackedNorm()

        def construct(self, x):
            first, second = self.norm(x)
            return first * 5 + second + self.packed_norm(x)[0]

    net = Net()
    install(net)
    x = np.ones(4, np.float32)
    np.testing.assert_array_equal(ms.grad(net)(Tensor(x)).asnumpy(), 20 * x)
    assert readings()["norm"].value == 10.0


def test_a_network_that_is_itself_a_norm_is_checked():
    net = fill(nn.LayerNorm((HIDDEN,)))
    assert install(net).found == ["LayerNorm"]
    ms.grad(net)(targets()).asnumpy()
    assert list(readings()) == ["LayerNorm"]


def test_slots_are_given_back_with_the_network():
    for _ in range(3):
        net = Decoder()
        used = [site.slot for site in install(net).sites]
        assert len(slots.table().sites()) >= 4
        del net
    assert max(used) < 100


def test_a_full_table_is_one_sentence(monkeypatch):
    monkeypatch.setattr(slots.table()._sites, "capacity", 2)
    with pytest.raises(UnsupportedError, match=" all 2 slots "):
        install(Decoder())


def of_mcore(kind):
    from mindformers.parallel_core.transformer_config import TransformerConfig

    return kind(config=TransformerConfig(num_layers=1, num_attention_heads=1, hidden_size=HIDDEN), dim=HIDDEN)


MCORE = "parallel_core.training_graph.transformer.norm"
MINDFORMERS = [
    ("LlamaRMSNorm", "models.llama.llama_layer", lambda kind: kind(HIDDEN, fused_kernel=False)),
    ("LlamaEmbedding", "models.llama.llama_layer", lambda kind: kind(13, HIDDEN)),
    ("LayerNorm", "modules.layers", lambda kind: kind((HIDDEN,))),
    ("ChatGLM2RMSNorm", "models.glm2.glm2_modules", lambda kind: kind(HIDDEN)),
    *((name, MCORE, of_mcore) for name in ("LayerNorm", "RMSNorm", "FusedLayerNorm")),
]


@pytest.mark.parametrize(("name", "module", "make"), MINDFORMERS)
def test_norms_and_embeddings_of_mindformers_are_found(name, module, make):
    pytest.importorskip("mindformers")
    cell = make(getattr(pytest.importorskip(f"mindformers.{module}"), name))
    assert install(Holder(it=cell)).found == ["it"]
