"""mindformers' Llama compiles for Ascend under detection, and the collectives of its training stay what they are.

What a compilation can't show is told in `empty_cann`: numbers, speed, kernels, PyNative.
"""

from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
from empty_cann import build, compile_on, why_not

LLAMA = Path(__file__).parent / "programs" / "llama.py"
LAYOUTS = {
    "tensor": ("--tensor", 2, "--data", 2),
    "pipeline": ("--tensor", 2, "--data", 2, "--stages", 2),
    "pipeline-inlined": ("--tensor", 2, "--data", 2, "--stages", 2, "--inline"),
}
DEFAULT = {"NPU_ASD_ENABLE": "1"}
ADAPTIVE = {**DEFAULT, "ASD_RULE": "adaptive"}
CHECKSUM = {**ADAPTIVE, "ASD_TIERS": "finite,adaptive,checksum"}
GATE = Counter(AllReduce=1)  # that all ranks refuse an update together

pytestmark = [
    pytest.mark.dry_run,
    pytest.mark.slow,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
    pytest.mark.skipif(find_spec("mindformers") is None, reason="mindformers is not here"),
]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A function that compiles a layout under settings, once."""
    cann, done = build(tmp_path_factory.mktemp("cann")), {}

    def run(layout, **settings):
        key = (layout, *settings.items())
        if key not in done:
            words = LAYOUTS[layout]
            ranks = 8 if "--stages" in words else 4
            done[key] = compile_on(cann, tmp_path_factory.mktemp("rank"), LLAMA, *words, ranks=ranks, **settings)
        assert done[key].code == 0, done[key].log[-3000:]
        return done[key]

    return run


@pytest.mark.parametrize("settings", [DEFAULT, ADAPTIVE], ids=["default", "adaptive"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_detection_compiles_and_adds_one_small_all_reduce(compiled, layout, settings):
    assert compiled(layout, **settings).collectives == compiled(layout).collectives + GATE


@pytest.mark.parametrize("layout", ["tensor", "pipeline"])
def test_checksums_are_left_out_with_a_word_and_no_sum_of_gradients_is_lost(compiled, layout):
    done = compiled(layout, **CHECKSUM)
    assert "have no checksums in semi_auto_parallel" in done.log
    assert done.collectives == compiled(layout).collectives + GATE


def test_a_rank_of_a_pipeline_checks_the_cells_of_its_own_stage(compiled):
    log = compiled("pipeline-inlined", **DEFAULT).log
    assert "3 checkpoints: model.tok_embeddings, model.layers.0.ffn_norm, model.layers.0.attention_norm;" in log
