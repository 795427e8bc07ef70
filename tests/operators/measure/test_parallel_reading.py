"""Parameters that are read in several threads: the answers are those of one thread, in the same order."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor

from asd.operators.measure import parallel_reading
from asd.operators.measure.parallel_reading import read_each


def parameters(count, elements, dtype=ms.float32):
    random = np.random.default_rng(7)
    arrays = [random.standard_normal(elements + i).astype(np.float32) for i in range(count)]
    return [Parameter(Tensor(array, dtype), name=f"p{i}") for i, array in enumerate(arrays)]


@pytest.mark.parametrize(("count", "elements"), [(0, 1), (1, 5), (7, 11), (9, 300_000)])
def test_each_parameter_is_read_once_and_the_answers_keep_their_order(count, elements):
    assert read_each(lambda array: array.size, parameters(count, elements)) == [elements + i for i in range(count)]


def test_batches_change_nothing(monkeypatch):
    some = parameters(9, 300_000, ms.bfloat16)
    whole = read_each(lambda array: float(array.sum()), some)
    monkeypatch.setattr(parallel_reading, "_BATCH", 1 << 20)
    assert read_each(lambda array: float(array.sum()), some) == whole
    assert len(set(whole)) == 9


def test_what_fails_in_one_thread_reaches_the_caller():
    def read(array):
        if array.size == 300_008:
            raise ValueError("p8")
        return array.size

    with pytest.raises(ValueError, match="p8"):
        read_each(read, parameters(9, 300_000))
