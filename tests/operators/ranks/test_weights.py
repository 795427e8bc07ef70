"""The hash of a weight, and when ranks compare theirs."""

from types import SimpleNamespace

import mindspore as ms
import numpy as np
import pytest
from checked_nets import flip
from mindspore import Parameter, Tensor, nn

from asd import Level
from asd.diagnosis.groups import everybody
from asd.diagnosis.weights import Difference, compare_some
from asd.judge.reports import Reports
from asd.operators.gate.step_record import StepRecord
from asd.operators.monitor.weight_watch import WeightWatch
from asd.operators.ranks import memory_sums
from asd.operators.ranks.exchange import Exchange
from asd.operators.ranks.weights import BLOCK, WeightComparison, hashes_of, odd_numbers, sketches_of, total_of
from asd.operators.sensors.own_gradients import alike_on_ranks
from asd.origin import Origin
from asd.rundir.manifest import Health


def numpy_hash(words, *, half=False):
    """Of int32 words the same number, block by block."""
    words, odd = words if half else words + (words >> 16), odd_numbers()
    blocks = [words.reshape(-1)[begin : begin + BLOCK].view(np.uint32) for begin in range(0, words.size, BLOCK)]
    return total_of(int((block * odd[: block.size]).sum(dtype=np.uint32)) for block in blocks)


@pytest.mark.parametrize("parted", [False, True])
def test_state_of_which_each_rank_updates_a_part_is_not_compared_with_that_of_others(parted):
    net = nn.Dense(4, 4)
    optimizer = nn.AdamWeightDecay(net.trainable_params(), 1e-3)
    optimizer.use_parallel = parted  # as by `enable_parallel_optimizer`, which only Ascend has
    cell = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)
    names = {each.name.partition(".")[0] for each in alike_on_ranks(cell, optimizer)}
    assert ("adam_m" in names) is not parted


@pytest.mark.parametrize("dtype", [ms.float32, ms.float16, ms.bfloat16])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 3, 4), (0, 3)])
def test_numpy_computes_the_hash_of_a_device(dtype, shape):
    wide = np.random.default_rng(1).standard_normal(shape)
    weight = Tensor(np.asarray(wide, np.float32)).astype(dtype)
    words = np.atleast_1d(weight.astype(ms.float32).asnumpy())
    if dtype == ms.float32:
        words = words.view(np.int32)
    elif dtype == ms.float16:
        words = words.astype(np.float16).view(np.int16).astype(np.int32)
    else:
        words = words.view(np.int32) >> 16
    expected = numpy_hash(words, half=dtype != ms.float32)
    assert hashes_of([weight, weight]) == [expected] * 2
    assert hashes_of([weight]) == [expected]


def test_a_large_weight_is_hashed_in_blocks():
    words = np.random.default_rng(2).integers(-(2**31), 2**31, 2 * BLOCK + 5).astype(np.int32)
    assert hashes_of([Tensor(words.view(np.float32))]) == [numpy_hash(words)]
    whole = Tensor(np.zeros(words.size, np.float32))
    whole.to_local = lambda: Tensor(words.view(np.float32))  # as a DTensor, of which this rank holds a shard
    assert hashes_of([whole]) == [numpy_hash(words)]


def test_rows_that_are_swapped_or_copied_and_any_flipped_bit_change_the_hash():
    rows = np.random.default_rng(3).integers(-(2**15), 2**15, (64, 4096)).astype(np.int32) << 16  # as of bfloat16
    swapped, copied = rows.copy(), rows.copy()
    swapped[[3, 35]] = rows[[35, 3]]
    copied[3] = rows[35]
    flipped = [rows.copy() for _ in range(32)]
    for bit, each in enumerate(flipped):
        each.view(np.uint32)[5, 17] ^= np.uint32(1 << bit)
    for bit in (31, 30, 29):  # in several words, as by a line that is stuck: their sum alone stays the same
        flipped.append(rows.copy())
        flipped[-1].view(np.uint32)[7, 8:24] ^= np.uint32(1 << bit)
    flipped.append(np.where(np.arange(64)[:, None] == 9, ~rows, rows))  # as where zeros are read as all ones
    found = hashes_of([Tensor(each.view(np.float32)) for each in (rows, swapped, copied, *flipped)])
    assert len(set(found)) == len(found)
    assert total_of([1, 2]) != total_of([2, 1])


@pytest.mark.parametrize("dtype", [ms.float32, ms.float16, ms.bfloat16])
def test_flips_are_told_from_writes_and_from_sums_that_are_wrong_and_put_back_bit_for_bit(dtype, monkeypatch):
    monkeypatch.setattr(memory_sums, "TURNS", 8)  # two turns, of one large tensor, and of two that are joined
    arrays = [np.random.default_rng(4).normal(size=shape) for shape in ((512, 520), (33, 77), (97,))]
    tensors = [Parameter(Tensor(each, ms.float32).astype(dtype)) for each in arrays]
    sums, logs = (memory_sums.MemorySums(tensors, heals=heals) for heals in (True, False))

    def found(which, change):
        which.seal(updated=True)
        struck = tensors[which._blocks[which._turn][-1][-1]]
        before = hashes_of([struck])
        change(struck)
        damage = which.damage()
        return None if damage is None else damage.healed, hashes_of([struck]) == before

    high = 16 if dtype == ms.float32 else 0
    for bits in (1 << 15, 1 << 14, 3 << 11, 15 << 10, *((1 << 3, 3 << 5) if high else ())):
        assert found(sums, lambda struck, bits=bits: flip(struck, 90, bits << high)) == (True, True)
    assert found(logs, lambda struck: flip(struck, 5, 1 << 14 << high)) == (False, False)
    for bits in (1, 1 << (18 if high else 6), 3 << (18 if high else 6)):  # as a clamp may change one number
        assert found(sums, lambda struck, bits=bits: flip(struck, 90, bits)) == (None, False)
    assert found(sums, lambda struck: struck.set_data(struck * 0.5)) == (None, False)
    assert found(sums, lambda struck: flip(struck, 3, 1 << 15 << high)) == (True, True)
    assert found(sums, lambda struck: flip(struck, 3, 0b1000000000100001)) == (None, False)  # no neighbours
    right, more = memory_sums.sum_of, [1]
    wrong = lambda rows, axis: right(rows, axis) + (more.pop() if more else 0)  # noqa: E731
    assert found(sums, lambda _: monkeypatch.setattr(memory_sums, "sum_of", wrong)) == (False, True)


@pytest.mark.parametrize(("wait", "turns", "every", "steps"), [(40, 1, 1, [4]), (10, 2, 1, [4, 7]), (0.1, 4, 4, [4])])
def test_all_weights_are_summed_in_each_step_where_that_takes_little(wait, turns, every, steps, monkeypatch):
    clock = [0.0]

    def now():
        clock[0] += 0.01
        return clock[0]

    monkeypatch.setattr(memory_sums, "time", SimpleNamespace(perf_counter=now))
    tensors = [Parameter(np.ones(size, np.float32)) for size in (300, 70, 5000, 4000)]
    sums = memory_sums.MemorySums(tensors)
    for step in range(12):
        assert sums.seal(updated=True) == (step in steps)
        clock[0] += wait * sums.every
        assert sums.damage() is None
    assert (sums.turns, sums.every) == (turns, every)
    for weight in tensors if turns == 1 else ():
        sums.seal(updated=True)
        flip(weight, 60, 1 << 30)
        assert sums.damage().name == weight.name
        assert (weight.asnumpy() == 1).all()


def test_one_rank_alone_compares_nothing():
    alone = WeightComparison(nn.Dense(2, 2).trainable_params(), Exchange(), 50)
    assert not alone.active
    assert alone.after(50) is None


class Both:
    """Two ranks that hold the same, and tell the same."""

    rank, size, groups, lost = 0, 2, everybody(2, 0, ""), None

    def gather(self, message, size):
        return [message, message]

    def tell(self, **words):
        return [words, words]


def test_last_bits_and_weights_that_never_were_alike_accuse_nobody_and_a_rank_that_can_not_read_its_own_is_told():
    watch, problems, weight = WeightWatch(Health()), [], Parameter(np.ones(4, np.float32), name="w")
    monitor = SimpleNamespace(has=dict, problem=problems.append, publish=lambda event: event)
    monitor.status, origin = SimpleNamespace(check_seconds=0.0), Origin("r", 0, "h", "")
    monitor.reports = Reports(origin, "", "", float)
    watch.serve(monitor, None, None, both := Both())

    def after(step, *found):
        watch._comparison._compare = lambda: found
        watch.compare(record := StepRecord(step, None, 1.0, refused=False))
        return [(each.level, each.origin.rank) for each in record.events], record.damage is not None

    watch.watch([weight], 1)
    rounding, wrong = Difference((), ("w",), "", is_rounding=True), Difference((1,), ("w",), "")
    assert [after(1), after(2, rounding), after(6, rounding)][1:] == [([(Level.WARNING, -1)], False), ([], False)]
    assert (after(10, wrong), problems) == (([(Level.NORMAL, 0)], True), [])
    watch.watch([weight], 1)
    weight.to_local, both.gather = lambda: 1 / 0, lambda message, size: [message, bytes(size)]
    watch.compare(StepRecord(1, None, 1.0, refused=False))
    assert after(2, wrong) == ([], False)
    assert ["cannot be read: ZeroDivision" in problems[0], "at the start" in problems[1]] == [True, True]


def test_sums_are_near_where_last_bits_differ_and_not_where_an_element_does():
    numbers = np.random.default_rng(4).standard_normal(BLOCK + 5).astype(np.float32)
    far = np.where(np.arange(numbers.size) == 9, 8 * numbers.max(), numbers)
    told = [[i, *each] for i, each in enumerate(sketches_of(map(Tensor, (numbers, np.nextafter(numbers, 1), far))))]
    near, odd = (compare_some((0, *others), [{"w": each} for each in told], {}) for others in ([1], [1, 2]))
    assert (near.odd, near.is_rounding, odd.odd) == ((), True, (2,))


def test_ranks_compare_after_every_so_many_steps_also_where_a_call_makes_several_and_after_a_roll_back_anew():
    watch = WeightWatch(Health())
    watch.serve(SimpleNamespace(status=SimpleNamespace(check_seconds=0.0)), None, None, Both())
    watch.watch(nn.Dense(2, 2).trainable_params(), 16)

    def alike_after(*steps):
        for step in steps:
            watch.compare(StepRecord(step, None, 1.0, refused=False))
        return watch._comparison.alike

    assert (alike_after(5, 10, 15), alike_after(20), alike_after(25, 30)) == (5, 20, 20)
    watch.watch(nn.Dense(2, 2).trainable_params(), 16)
    assert alike_after(*range(1, 34)) == 32
    assert alike_after(20) == 19
