"""What the checks cost on Ascend, counted from compiled graphs, stays within what was promised."""

import json

import pytest
from cost import LAYOUTS, RESULTS, Count, count, measure
from empty_cann import build, why_not

MOST = {"document": {"tensor": 2.0}, "full": {"experts": 5.2}}  # there all experts are read, and few computed
USUAL = {"document": 1.0, "full": 3.0}
LAUNCHES = {("data", "full"): 5.5}
"""Per place, where it misses the aim of 2.5: a gather and a sum of each gradient, before and after its reducer."""
PLACES = {"tensor": 358, "sequence": 358, "data": 358, "ZeRO": 358, "experts": 580}
GRAPH = """
# Parameters: 3, (<Tensor[BFloat16], (4, 8)>, <Ref[Tensor[Float32]], (4), ref_key=weight>, <Tensor[Float32], (2)>)
subgraph @1_◂backward(%para1_x, %para2_weight, %para3_y) {
  %0(x) = PrimFunc_Cast(%para1_x, I64(43)) {instance name: cast}
      : (<Tensor[BFloat16], (4, 8)>, <Int64, NoShape>) -> (<Tensor[Float32], (4, 8)>)
  %1(y) = PrimFunc_Reshape(%0, (32))
      : (<Tensor[Float32], (4, 8)>, <Tuple[Int64*1], TupleShape(NoShape)>) -> (<Tensor[Float32], (32)>)
  %2(z) = PrimFunc_LinalgVectorNorm(%para1_x, F32(2), None, Bool(0), I64(43))
      : (<Tensor[BFloat16], (4, 8)>, <Float32, NoShape>) -> (<Tensor[Float32], ()>)
}
"""


def test_bytes_launches_and_what_is_kept_for_the_backward_pass_are_read_from_a_graph():
    assert count(GRAPH) == Count(bytes=4 * 8 * (6 + 10) + 4, launches=3, kept=4 * 8 * 2 + 2 * 4)


@pytest.mark.parametrize("protection", USUAL)
def test_a_step_costs_no_more_than_its_share(protection):
    found = json.loads(RESULTS.read_text())
    assert set(found) == {"measured", *LAYOUTS}
    del found["measured"]
    for layout, rows in found.items():
        assert rows[protection]["percent"] <= MOST[protection].get(layout, USUAL[protection]), layout
        assert rows[protection]["launches"] <= LAUNCHES.get((layout, protection), 2.5) * PLACES[layout], layout
        assert rows[protection]["kept_megabytes"] == 0, layout


@pytest.mark.dry_run
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_what_is_stored_is_what_is_compiled_today(tmp_path):
    found = measure(build(tmp_path / "cann"), "tensor")
    assert found == json.loads(RESULTS.read_text())["tensor"]
