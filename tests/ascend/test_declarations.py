"""Where an operator runs is read from MindSpore's own declarations."""

from declarations import why_not_for_ascend


def test_one_that_is_not_is_found_out():
    assert why_not_for_ascend("AdaptiveMaxPool3D") == "it is for ``GPU`` ``CPU``"
    assert why_not_for_ascend("ScatterMost") == "MindSpore has no such operator"
