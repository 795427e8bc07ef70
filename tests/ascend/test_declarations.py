"""Every operator that checks on Ascend are made of is one for Ascend, by MindSpore's own declarations."""

import pytest
from declarations import named_operators, why_not_for_ascend


def test_the_operators_are_found():
    assert {"ScatterMax", "AllReduce", "Assign", "Maximum"} <= named_operators()


@pytest.mark.parametrize("name", sorted(named_operators()))
def test_an_operator_of_ours_is_declared_for_ascend(name):
    assert why_not_for_ascend(name) is None


def test_one_that_is_not_is_found_out():
    assert why_not_for_ascend("AdaptiveMaxPool3D") == "it is for ``GPU`` ``CPU``"
    assert why_not_for_ascend("ScatterMost") == "MindSpore has no such operator"
