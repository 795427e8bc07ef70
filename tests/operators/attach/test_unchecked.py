"""What the tier `checksum` can't compute again is said at the start, once."""

import pytest
from mindspore import nn

from asd.operators import install_checksum
from asd.operators.attach.left_out import take_left_out

pytestmark = pytest.mark.usefixtures("clean")


def test_layers_that_nothing_computes_again_are_named_with_the_reason():
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.up, self.volume, self.conv = nn.Conv2dTranspose(2, 2, 3), nn.Conv3d(2, 2, 3), nn.Conv2d(2, 2, 3)
            self.attention = nn.MultiheadAttention(4, 2)

    take_left_out()
    sites = install_checksum(Net())
    told = dict(take_left_out())
    assert told["up"] == "nothing computes a Conv2DTranspose again"
    assert told["volume"] == "nothing computes a Conv3D again"
    assert "functions" in told["attention"]
    assert [site.name for site in sites if site.name.startswith("conv")] == [
        "conv.checksum",
        "conv.checksum_dx",
        "conv.checksum_dw",
    ]
    assert not take_left_out()
