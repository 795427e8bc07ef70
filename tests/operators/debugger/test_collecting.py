"""What the C++ library queues of the tensors of a compiled graph is what Python tells of them, in the same order."""

import ctypes
import threading
import time
import zlib

import numpy as np
import pytest

from asd.dumps.record.crc import widen_bfloat16
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.dumps.record.writer import DumpWriter
from asd.operators.debugger.graph.collecting import Collector
from asd.operators.debugger.hooks.graph_taps import FORWARD_IN, FORWARD_OUT
from asd.operators.debugger.record import delivery
from asd.operators.kernel import library as kernel

pytestmark = pytest.mark.skipif(kernel.library is None, reason="the C++ kernel was not built")


def seen_by_a_tap(label, array, dtype=None):
    """As MindSpore calls the operator of a tap."""
    at, out = np.array(label, np.int32), np.zeros(1, np.float32)
    values = (array, at, out)
    addresses = (ctypes.c_void_p * 3)(*(value.ctypes.data for value in values))
    sizes = [(ctypes.c_int64 * max(value.ndim, 1))(*value.shape) for value in values]
    shapes = (ctypes.POINTER(ctypes.c_int64) * 3)(
        *(ctypes.cast(each, ctypes.POINTER(ctypes.c_int64)) for each in sizes)
    )
    types = (ctypes.c_char_p * 3)(*((dtype or array.dtype.name).encode(), b"int32", b"float32"))
    ranks = (ctypes.c_int * 3)(*(value.ndim for value in values))
    assert kernel.library.asd_deliver(3, addresses, ranks, shapes, types, None, None) == 0


def tensors():
    """Of every kind and length that the library treats in a way of its own."""
    draw = np.random.default_rng(8)
    normal = draw.standard_normal(50_000).astype(np.float32)
    found = [normal[:size] for size in (0, 1, 63, 64, 65, 127, 128, 8191, 8192, 8193, 8199, 20_001, 50_000)]
    found += [
        normal[:60].reshape(3, 4, 5),
        normal[:1000].reshape(10, 1, 100),
        normal[:0].reshape(4, 0),
        normal[0].reshape(()),
    ]
    for special in (np.nan, np.inf, -np.inf, 1e20, -3e38):
        found += [
            np.where(np.arange(size) == size // 2, np.float32(special), normal[:size]) for size in (9, 300, 40_000)
        ]
    found += [normal[:300] * np.float32(scale) for scale in (0.0, -0.0, 1e-20, 1e-42)]  # the last ones are denormal
    found += [(normal[:size] * 100).astype(kind) for size in (7, 500, 40_000)
              for kind in (np.float16, np.float64, np.int8, np.uint8, np.int32, np.int64, np.bool_)]  # fmt: skip
    found += [(normal[:300] + 1j * normal[300:600]).astype(np.complex64), normal[: 2**10].reshape((2,) * 10)]
    bits = [draw.integers(0, 1 << 16, size).astype(np.uint16) for size in (0, 5, 64, 90_000)]
    bits += [(normal[:size].view(np.uint32) >> 16).astype(np.uint16) for size in (40, 100, 8192, 9000)]
    return [(np.asarray(array), None) for array in found] + [(array, "bfloat16") for array in bits]


@pytest.fixture(params=["statistics", "md5"])
def writer(request, tmp_path):
    config = DebuggerConfig.of({"task": request.param, "level": "L0", "dump_path": str(tmp_path)})
    new = DumpWriter(tmp_path / "rank0", config, read=delivery.read_moments)
    yield new
    delivery.deliver_to(None)
    new.finish()


def test_what_is_queued_of_a_tensor_is_what_python_tells_of_it(writer):
    checks = writer.told(np.ones(3, np.float32), "Float32").get("md5") is not None
    collector = Collector(writer, range(4), empty=pytest.fail, checks=checks)
    collector.begin()
    expected = []
    for place, (array, dtype) in enumerate(tensors()):
        seen_by_a_tap((3, FORWARD_IN, place, -1), array.copy(), dtype)
        wide = widen_bfloat16(array) if dtype else array
        told = writer.told(wide, "BFloat16" if dtype else delivery.dtype_name_of(array.dtype.name))
        assert told.get("md5") == (f"{zlib.crc32(wide.tobytes()):08x}" if checks else None)
        expected.append(((3, FORWARD_IN, place, -1), told))
    found = list(collector.take())
    assert repr(found) == repr(expected)  # as text, for nan is not equal to nan
    assert list(collector.take()) == []


def test_an_array_is_told_of_in_the_same_way_whether_it_is_read_once_or_twice(writer, tmp_path):
    once = DumpWriter(tmp_path / "once", writer._config, read=delivery.read_moments, both=delivery.summarise)
    once.finish()
    for array, _ in tensors():
        assert repr(once.told(array, "Float32")) == repr(writer.told(array, "Float32"))
    table = np.arange(600, dtype=np.float32).reshape(20, 30)
    assert once.told(table.T, "Float32") == writer.told(table.T, "Float32")


def test_what_nobody_wants_is_queued_for_its_place_in_the_order_and_not_read(writer):
    collector = Collector(writer, [FORWARD_OUT], empty=pytest.fail, checks=True)
    collector.begin()
    array = np.ones(100, np.float32)
    for what in (FORWARD_IN, FORWARD_OUT, FORWARD_IN):
        seen_by_a_tap((0, what, 0, -1), array)
    assert [(label[1], told is None) for label, told in collector.take()] == [
        (FORWARD_IN, True), (FORWARD_OUT, False), (FORWARD_IN, True)
    ]  # fmt: skip


def test_the_queue_is_emptied_within_a_graph_that_takes_more_than_a_second(writer):
    taken = []
    collector = Collector(writer, range(4), empty=lambda: taken.extend(collector.take()), checks=False)
    collector.begin()
    array = np.ones(100, np.float32)
    seen_by_a_tap((0, 1, 0, -1), array)
    assert taken == []
    time.sleep(1.1)
    seen_by_a_tap((1, 1, 0, -1), array)
    assert [label[0] for label, _ in taken] == [0, 1]
    seen_by_a_tap((2, 1, 0, -1), array)
    assert len(taken) == 2


def test_what_a_graph_left_in_the_queue_is_no_part_of_the_next_step(writer):
    for number in range(2):
        collector = Collector(writer, range(4), empty=pytest.fail, checks=False)
        collector.begin()
        seen_by_a_tap((number, 1, 0, -1), np.ones(100, np.float32))
    assert [label[0] for label, _ in collector.take()] == [1]


def test_a_graph_that_still_runs_while_others_are_to_get_its_tensors_calls_nothing_that_is_gone():
    over, seen = threading.Event(), []

    def graph():
        while not over.is_set():
            seen_by_a_tap((1, FORWARD_IN, 0, -1), np.ones(3, np.float32))

    running = [threading.Thread(target=graph) for _ in range(8)]
    for each in running:
        each.start()
    for turn in range(60):
        delivery.deliver_to(lambda label, array, dtype, turn=turn: seen.append(turn))
        time.sleep(0.0005)
    over.set()
    for each in running:
        each.join()
    delivery.deliver_to(None)
    assert len(set(seen)) > 1
