"""Trainings compile for Ascend under detection, and their collectives stay what they are."""

import json
from collections import Counter
from importlib.util import find_spec

import pytest
from compile_matrix import LAYOUTS, RESULTS, Cell, cells
from declarations import why_not_for_ascend
from empty_cann import why_not

GATE = Counter(AllReduce=1)  # that all ranks refuse an update together
# MindSpore 2.9 leaves out the sum of each gradient that this rank does not update, though other ranks wait for it.
SUMS_ARE_LOST = ("data-optimizer", "data-optimizer-last")

quick = pytest.mark.dry_run, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
dry_run = *quick, pytest.mark.slow
llama = pytest.mark.skipif(find_spec("mindformers") is None, reason="mindformers is not here")
QUICK = ("blocks", "tensor-data", "full")  # with every change


def on_ascend(*tests):
    return [pytest.param(*test, id="-".join(test), marks=marks(test)) for test in tests]


def marks(test):
    return (*(quick if test == QUICK else dry_run), *([llama] if test[0] in ("llama", "qwen", "qwen_moe") else []))


def expected(cell, without):
    """The collectives of a cell, given those that it has without detection."""
    return without + (Counter() if LAYOUTS[cell.layout].ranks == 1 else GATE)


def check(cell, found, without):
    assert found["compiled"], f"{cell}: {found['error']}"
    assert Counter(found["collectives"]) == expected(cell, Counter(without["collectives"])), cell


@pytest.mark.parametrize(
    ("net", "layout", "protection"),
    on_ascend(
        ("blocks", "data", "document"),
        ("blocks", "tensor-data", "full"),
        ("blocks", "pipeline", "document"),
        ("blocks", "pipeline", "full"),
        ("blocks", "optimizer-1", "document"),
        ("gather", "tensor-data", "document"),
        ("norm_last", "pipeline", "document"),
        ("norm_last", "pipeline", "full"),
        ("blocks", "accumulate", "document"),
        ("blocks", "wrapped", "full"),
        ("blocks", "search", "full"),
        ("blocks", "propagated", "full"),
        ("blocks", "sunk", "full"),
        ("blocks", "sunk-rerun", "full"),
        ("convolutions", "data", "full"),
        ("llama", "tensor-data", "full"),
        ("llama", "pipeline", "document"),
        ("llama", "pipeline-inlined", "document"),
        ("qwen", "tensor-data", "document"),  # its embedding is a function of its own
        ("qwen", "tensor-data", "full"),
        ("qwen_moe", "experts", "document"),
        ("qwen", "own-pipeline", "full"),
    ),
)
def test_detection_compiles_and_adds_one_small_all_reduce(compiled, net, layout, protection):
    found, without = compiled(net, layout, protection), compiled(net, layout, "none")
    check(Cell(net, layout, protection), found, without)
    assert ("GetNext" in found["kinds"]) is (layout == "sunk") is ("GetNext" in without["kinds"])


@pytest.mark.parametrize(
    ("net", "layout", "protection"),
    on_ascend(
        *(("blocks", layout, "struck") for layout in ("data", "tensor-data", "pipeline", "optimizer-1", "sunk")),
        ("blocks", "data", "wrong sums"),
    ),
)
def test_injected_faults_compile(compiled, net, layout, protection):
    assert "TensorScatterUpdate" in compiled(net, layout, protection)["kinds"]


@pytest.mark.parametrize("protection", on_ascend(("document",)))
def test_in_a_pipeline_a_rank_checks_the_cells_of_its_own_stage(compiled, protection):
    assert compiled("blocks", "pipeline", protection)["checked"] == "2 checkpoints: embedding, layers.0.norm.layer_norm"


@pytest.mark.parametrize("protection", on_ascend(("document",)))
def test_all_ranks_sum_up_all_gradients_beside_a_parallel_optimizer(compiled, protection):
    first, last = (compiled("blocks", layout, protection) for layout in SUMS_ARE_LOST)
    assert first["collectives"] == last["collectives"]


@pytest.mark.parametrize("protection", on_ascend(("full",)))
def test_mindspore_declares_every_operator_of_ours_for_ascend(compiled, protection):
    found, without = compiled("blocks", "single", protection), compiled("blocks", "single", "none")
    of_ours = set(found["kinds"])
    assert {"ScatterMax", "LinalgVectorNorm"} <= of_ours
    of_ours -= set(without["kinds"])
    assert not {name: reason for name in of_ours if (reason := why_not_for_ascend(name))}
    # The checks compute in single precision whatever the network does; a device may have no other arithmetic.
    assert set(found["types"]) - set(without["types"]) <= {"Float32", "Int32", "Bool"}


def test_what_was_compiled_of_the_matrix_holds_the_same_rules():
    found = json.loads(RESULTS.read_text())
    del found["measured"]
    assert list(found) == [str(cell) for cell in cells() if str(cell) in found]
    assert {"document", "full"} <= {cell.rpartition("/")[2] for cell in found}
    for cell in cells():
        if str(cell) in found and cell.protection != "none" and cell.layout not in SUMS_ARE_LOST:
            check(cell, found[str(cell)], found[str(cell._replace(protection="none"))])


def test_without_detection_mindspore_itself_loses_sums_of_gradients_beside_a_parallel_optimizer():
    found = json.loads(RESULTS.read_text())
    first, last = (found[f"blocks/{layout}/none"]["collectives"] for layout in SUMS_ARE_LOST)
    assert first["AllReduce"] != last["AllReduce"]
