"""What a page about check operators imports besides."""

import os

os.environ["NPU_ASD_ENABLE"] = "1"

from mindspore.ops import operations as P  # noqa: F401, N812
