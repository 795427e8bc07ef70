"""Two dumps side by side: each call with its partner, row by row, in the order of execution.

The rule of tensors, in its order:

    1. `No`  when Cosine < 0.99 and MaxAbsErr > 0.001
    2. `No`  when Cosine < 0.9
    3. `No`  when MaxAbsErr > 1
    4. `Yes` otherwise

A metric that there is none for (the cosine of a single element) breaks no rule. A slot that one side lacks, or with
another shape, is `Unmatched` and never passes.
"""

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

from asd.dumps.compare.matching import Matching
from asd.dumps.compare.metrics import NOT_A_NUMBER, SHAPE_UNMATCHED, UNSUPPORTED, Metrics, compare_files
from asd.dumps.formats.dump_folder import Dump, tensor_file
from asd.dumps.formats.npy_file import NpyFile, TensorFile
from asd.dumps.formats.slots import Entry, Slot
from asd.dumps.formats.torch_file import TorchFile
from asd.errors import StateError

UNMATCHED = "Unmatched"
_TYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()  # noqa: SIM905
)
"""Types whose files have the same type."""
_Job = tuple[Entry | None, Entry | None]
_READERS = max(2, min(8, os.cpu_count() or 1))
_AHEAD = 8  # calls per reader that may be under way before their turn; keeps memory constant


class ComparedRow(msgspec.Struct, gc=False):
    """One slot on both sides."""

    call: str  # name of its call in the run under test
    trusted_call: str  # name of its call in the trusted run
    tested: Slot | None  # the slot of the run under test, or None
    trusted: Slot | None  # the slot of the trusted run, or None
    # result of comparing the tensors; None when the dumps hold no tensors, or one side is missing
    metrics: Metrics | None = None
    same: bool | None = None  # whether both sides are equal; None when that is not known
    is_value: bool = False  # whether `same` follows from a value, a shape or a type, not from the elements of tensors
    verdict: str = ""  # the judgement, in the words of the rules in force
    message: str = ""  # why, in words
    difference: float | None = None  # difference of the sides, relative to the inputs of the call; None if unknown
    bound: float | None = None  # largest difference that rounding explains; None where bits are compared
    agrees: bool | None = None  # whether both sides agree within rounding; None where that is not known

    @property
    def name(self) -> str:
        """Its name in the run under test; `N/A` when only the trusted run has it."""
        return "N/A" if self.tested is None else f"{self.call}.{self.tested.suffix}"

    @property
    def trusted_name(self) -> str:
        """Its name in the trusted run; `N/A` when only the run under test has it."""
        return "N/A" if self.trusted is None else f"{self.trusted_call}.{self.trusted.suffix}"

    @property
    def state(self) -> str:
        """The kind of slot, one of `slots.STATES`."""
        slot = self.tested or self.trusted
        return slot.state if slot else ""

    @property
    def types_differ(self) -> bool:
        """True where both sides are tensors, of different types."""
        slots = (self.tested, self.trusted)
        return len({slot.kind for slot in slots if slot is not None and slot.scalar is None}) > 1


class CallRows(msgspec.Struct, gc=False, eq=False):
    """One call of an operator on both sides."""

    name: str  # its name in the run under test; in the trusted run when only that has it
    rows: Sequence[ComparedRow]  # its slots
    tested: Entry | None  # the call in the run under test, or None
    trusted: Entry | None  # the call in the trusted run, or None

    @property
    def trusted_name(self) -> str:
        """Its name in the trusted run, or its own."""
        return self.name if self.trusted is None else self.trusted.name


def same_value(ours: Slot, theirs: Slot) -> bool:
    """Returns whether two scalars are equal, 1 and 1.0 too; two tensors are, a scalar and a tensor are not."""
    if ours.scalar is None or theirs.scalar is None or ours.scalar == theirs.scalar:
        return bool(ours.scalar == theirs.scalar)
    number, other = ours.values[0], theirs.values[0]
    return number is not None and other is not None and (number == other or number != number != other != other)


def compare_dumps(tested: Dump, trusted: Dump, matching: Matching) -> Iterator[CallRows]:
    """Compares two dumps.

    Args:
        tested: The run under test.
        trusted: The trusted run.
        matching: Which calls belong together.
    """
    mode = mode_of(tested, trusted)
    if not matching.calls:
        raise StateError(
            f"{tested.path} and {trusted.path} have no call in common, such as {next(iter(tested.entries))!r} and "
            f"{next(iter(trusted.entries))!r}; a layer mapping may tell which belong together."
        )
    jobs = matching.in_order(tested, trusted)

    def one(job: _Job) -> CallRows:
        ours, theirs = job
        rows = []
        for mine, other in _pairs(ours, theirs, matching):
            row = _compare_slots((tested, trusted), (ours, theirs), (mine, other), mode)
            row.verdict = judge(row, mode)
            rows.append(row)
        return CallRows((ours or theirs).name, tuple(rows), ours, theirs)  # type: ignore[union-attr]

    return map(one, jobs) if mode != "tensor" else _in_parallel(one, jobs)


def _in_parallel(one: Callable[[_Job], CallRows], jobs: Iterable[_Job]) -> Iterator[CallRows]:
    """Returns the results in the order of the jobs; a few are under way ahead of their turn."""
    with ThreadPoolExecutor(_READERS, "asd-compare") as pool:
        under_way: deque[Future[CallRows]] = deque()
        try:
            for job in jobs:
                under_way.append(pool.submit(one, job))
                if len(under_way) > _READERS * _AHEAD:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for future in under_way:
                future.cancel()


def _pairs(ours: Entry | None, theirs: Entry | None, matching: Matching) -> list[tuple[Slot | None, Slot | None]]:
    if ours is None:
        return [(None, slot) for slot in theirs.slots] if theirs is not None else []
    pairs: list[tuple[Slot | None, Slot | None]] = [*matching.partners(ours, theirs)]
    if theirs is not None:
        taken = {id(slot) for _, slot in pairs}
        pairs += [(None, slot) for slot in theirs.slots if id(slot) not in taken]
    return pairs


def mode_of(tested: Dump, trusted: Dump) -> str:
    """Returns the most exact comparison that both dumps allow: `tensor`, `md5` or `statistics`."""
    for dump in (tested, trusted):
        if not dump.entries:
            raise StateError(f"{dump.path} holds no data of any operator (task {dump.task or 'unknown'!r}).")
    if tested.task == trusted.task == "tensor":
        return "tensor"
    return "md5" if _has_md5(tested) and _has_md5(trusted) else "statistics"


def _compare_slots(
    dumps: tuple[Dump, Dump],
    entries: tuple[Entry | None, Entry | None],
    slots: tuple[Slot | None, Slot | None],
    mode: str,
) -> ComparedRow:
    """Returns one row without its verdict.

    Args:
        dumps: The run under test, then the trusted run; so in the others.
        entries: The calls that the slots belong to.
        slots: The slots; at most one is None.
        mode: As `mode_of` gives it.
    """
    (ours, theirs), (tested, trusted) = entries, slots
    row = ComparedRow("" if ours is None else ours.name, "" if theirs is None else theirs.name, tested, trusted)
    if tested is None or trusted is None:
        row.message = f"only the {'run under test' if trusted is None else 'trusted run'} has it"
        return row
    if tested.scalar is not None or trusted.scalar is not None:
        row.same, row.is_value = same_value(tested, trusted), True
        row.metrics = Metrics.without_numbers(UNSUPPORTED, "") if mode == "tensor" else None
        row.message = "" if row.same else f"the values are {tested.scalar} and {trusted.scalar}"
        return row
    if tested.shape != trusted.shape:
        message = f"the shapes are {list(tested.shape)} and {list(trusted.shape)}"
        row.same, row.is_value, row.message = False, True, message
        row.metrics = Metrics.without_numbers(SHAPE_UNMATCHED, message) if mode == "tensor" else None
        return row
    if mode == "tensor":
        row.metrics = _compare_tensors(dumps, (tested, trusted))
        row.same, row.message = row.metrics.same_bits, row.metrics.message
    else:
        _compare_numbers(row, tested, trusted)
    if row.types_differ:
        row.message = "; ".join(filter(None, (f"the types are {tested.dtype} and {trusted.dtype}", row.message)))
    return row


def _compare_numbers(row: ComparedRow, tested: Slot, trusted: Slot) -> None:
    """Compares by CRC32, or by statistics: if these are infinite or NaN on both sides, they hide other differences."""
    if tested.md5 is not None and trusted.md5 is not None:
        if len(tested.md5) == len(trusted.md5):
            row.same = tested.md5.lower() == trusted.md5.lower()
            return
        row.message = "the check sums are of two kinds"
    known = [pair for pair in zip(tested.values, trusted.values, strict=True) if None not in pair]
    if any(n != b for n, b in known if not (math.isnan(n) and math.isnan(b))):
        row.same = False
    elif any(not any(map(math.isfinite, pair)) for pair in known):
        row.message = "Inf or NaN on both sides hides what else differs"
    elif known or 0 in tested.shape:
        row.same, row.message = True, ""


def _has_md5(dump: Dump) -> bool:
    return any(slot.md5 is not None for entry in dump.entries.values() for slot in entry.slots)


def _compare_tensors(dumps: tuple[Dump, Dump], slots: tuple[Slot, Slot]) -> Metrics:
    try:
        with (
            _opened(dumps[0], slots[0], "the run under test") as ours,
            _opened(dumps[1], slots[1], "the trusted run") as theirs,
        ):
            return compare_files(ours, theirs)
    except StateError as error:
        return Metrics.without_numbers(UNSUPPORTED, str(error))
    except OSError as error:
        return Metrics.without_numbers(UNSUPPORTED, f"{error.filename}: {error.strerror}")


def _opened(dump: Dump, slot: Slot, side: str) -> TensorFile:
    path = tensor_file(dump, slot)
    if path is None:
        raise StateError(f"{side} has no tensor of it.")
    try:
        file = TorchFile(path) if path.suffix == ".pt" else NpyFile(path)
    except FileNotFoundError:
        raise StateError(f"the tensor file {path} of {side} is missing.") from None
    kind = "bfloat16" if file.is_bfloat16 else file.dtype.name
    # A bfloat16 is written as a float32, and so is a type that NumPy has no name for.
    wrong = slot.kind != kind and slot.kind in _TYPES
    if file.shape != slot.shape or wrong:
        file.close()
        found, told = (kind, slot.dtype) if wrong else (list(file.shape), list(slot.shape))
        raise StateError(f"{path} has the {'type' if wrong else 'shape'} {found}, its dump says {told}.")
    return file


def judge(row: ComparedRow, mode: str) -> str:
    """Returns the verdict on a row: `Yes` or `No` of tensors, `pass` or `Different` of statistics and CRCs.

    `None` says that there is nothing to judge by: a missing tensor, or equal scalars among tensors.

    Args:
        row: What was compared.
        mode: `tensor`, `md5` or `statistics`.
    """
    tested, trusted = row.tested, row.trusted
    if tested is None or trusted is None or tested.shape != trusted.shape:
        return UNMATCHED
    if (tested.scalar is None) != (trusted.scalar is None):
        return UNMATCHED
    if mode == "tensor":
        return _judge_tensor(row)
    return "None" if row.same is None else "pass" if row.same else "Different"


def _judge_tensor(row: ComparedRow) -> str:
    metrics = row.metrics
    if metrics is None or (row.is_value and row.same):
        return "None"
    if metrics.max_abs == NOT_A_NUMBER or row.is_value:
        return "No"
    if not isinstance(metrics.max_abs, float):
        return "None"
    # One norm alone is 0: the directions have nothing in common.
    cosine = metrics.cosine if isinstance(metrics.cosine, float) else 0.0 if metrics.cosine == "Nan" else 1.0
    wrong = (cosine < 0.99 and metrics.max_abs > 0.001) or cosine < 0.9 or metrics.max_abs > 1
    return "No" if wrong else "Yes"
