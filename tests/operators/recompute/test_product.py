"""The checksum of one product: it cries no wolf, and finds what is wrong."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor
from products import KINDS, TYPES, in_order, normal, operands, product, repeated, spiked

from asd.operators.recompute.product import ProductCheck
from asd.operators.table import slots

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture
def judge():
    """Score of a product, and whether there is one."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    site = slots.table().new_site("product", "checksum")

    def judge(a, b, c, dtype, transpose_a=False, transpose_b=False):
        stored = a.swapaxes(-1, -2) if transpose_a else a, b.swapaxes(-1, -2) if transpose_b else b, c
        a, b, c = (Tensor(np.ascontiguousarray(x)).astype(getattr(ms, dtype)) for x in stored)
        score, judged = ProductCheck(site, transpose_a, transpose_b).judge(a, b, c)
        return float(score.asnumpy()[0]), bool(judged.asnumpy()[0])

    return judge


@pytest.mark.parametrize("dtype", TYPES)
def test_a_right_product_is_never_called_wrong(judge, dtype):
    for kind in KINDS:
        for (m, k, n), transposed in (((17, 256, 257), (True, True)), ((2, 3000, 3), (False, False))):
            a, b = operands(np.random.default_rng(m), kind, m, k, n, dtype)
            score, judged = judge(a, b, product(a, b, dtype), dtype, *transposed)
            assert score < 1 or not judged, (kind.__name__, m)


@pytest.mark.parametrize("kind", [spiked, repeated])
def test_rounding_that_goes_one_way_is_no_mistake(judge, kind):
    a, b = (each.astype(np.float32) for each in kind(np.random.default_rng(0), 1024))
    product = in_order(a, b)
    assert judge(a, b, product, "float32")[0] <= 1
    product[5, 200] *= 1.01
    assert judge(a, b, product, "float32")[0] > 1


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("transpose_a", "transpose_b"), [(False, False), (True, False), (False, True)])
def test_a_wrong_element_is_found_in_every_batch_row_and_block(judge, dtype, transpose_a, transpose_b):
    rng = np.random.default_rng(4)
    pairs = [operands(rng, normal, 5, 16, 300, dtype) for _ in range(3)]
    a, b, c = (np.stack(each) for each in zip(*((*pair, product(*pair, dtype)) for pair in pairs), strict=True))
    for place in ((0, 0, 0), (1, 4, 255), (2, 2, 299)):
        wrong = c.copy()
        wrong[place] += 8
        assert judge(a, b, wrong, dtype, transpose_a, transpose_b)[0] > 1
    assert judge(a, b, c, dtype, transpose_a, transpose_b)[0] < 1


@pytest.mark.parametrize("place", range(3))
def test_what_is_not_finite_is_not_judged(judge, place):
    a, b = operands(np.random.default_rng(0), normal, 5, 6, 7, "float32")
    arrays = [a, b, product(a, b, "float32")]
    arrays[place][1, 1] = np.nan
    assert not judge(*arrays, "float32")[1]
