"""A dump as it lies on disk: `step{N}/rank{R}/` with dump.json, stack.json, construct.json and the tensors beside them.

ptdbg's `rank{R}/dump.pkl` or `api_stack_dump.pkl` is lines of JSON, with the tensors in the folder of the same name
beside it; it is never unpickled.

Reads what this package and others write: folders `rank{R}`, `rank` and `proc{pid}`, both forms of stack.json, dump.json
with and without `framework`.
"""

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from asd.dumps.formats.json_file import json_members, open_text, read_json
from asd.dumps.formats.slots import Entry, Slot, read_entry, read_tensor, settings_in, split_name
from asd.errors import ConfigError, StateError, printable

_STEP = re.compile(r"step(\d+)")
_RANK = re.compile(r"rank(\d*)")
_PROCESS = re.compile(r"proc(\d+)")
_FILE = "dump.json"
_FILES = (_FILE, "dump.pkl", "api_stack_dump.pkl")  # of several in one folder the first counts
_LINE = re.compile(r"([^_]+)_(.+)_(\d+)_(forward|backward)_(input|output)(?:\.(.+))?")


@dataclass
class Dump:
    """One rank of one step."""

    path: Path  # the dump.json
    data_dir: Path  # folder with the tensors, which need not exist
    task: str = ""  # `tensor`, `statistics`, or another word of the file; empty when it has none
    framework: str = ""  # `mindspore` or `pytorch`; taken from the tensors if the file does not have it
    # every call by name, in the order in which the calls were computed
    entries: dict[str, Entry] = field(default_factory=dict)
    # construct.json: the parent of every name; empty without that file
    parents: dict[str, str | None] = field(default_factory=dict)
    tool: str = ""  # program that wrote it; empty when the file does not name it
    # versions and switches of the run, by name; empty when the file has none
    environment: dict[str, str] = field(default_factory=dict)
    # settings of the optimizers that ran in the step; None when the file has none
    optimizer: dict[str, str] | None = None


def find_dumps(path: Path) -> dict[tuple[int | None, int | None], Path]:
    """Returns the dumps under a path by (step, rank), each None if the path does not contain it.

    Args:
        path: A dump.json, or the folder of a rank, of a step, or of a whole dump.
    """
    if path.is_file():
        return {(_number(_STEP, path.parent.parent.name), _rank(path.parent)): path}
    found: dict[tuple[int | None, int | None], Path] = {}
    patterns = [above + name for name in _FILES for above in ("", "*/", "*/*/")]
    files = [file for pattern in patterns for file in sorted(path.glob(pattern))]
    for file in files:
        if any(file.with_name(name) in files for name in _FILES[: _FILES.index(file.name)]):
            continue
        if ".earlier" in str(file.relative_to(path)):  # what an earlier run left, and the writer moved aside
            continue
        place = path.resolve() / file.relative_to(path)  # a link below the path counts by its own name
        key = (_number(_STEP, place.parts[-3]), _rank(place.parent))
        if key in found:
            raise ConfigError("the dump", str(path), f"{found[key]} and {file} are of one step and rank; name one")
        found[key] = file
    if not found:
        raise ConfigError("the dump", str(path), f"a {_FILE}, or a folder that holds one, is needed")
    return found


def dump_members(path: Path) -> Iterator[tuple[str, str, object]]:
    """Returns the members of a dump.json: (`""`, name, value), and those of `data` as (`data`, name, value)."""
    for where, name, value in json_members(path, "data"):
        yield where, printable(name) if where else name, value


def read_dump(path: Path, data_dir: Path | None = None, beside: Dump | None = None) -> Dump:
    """Reads one rank of one step; the tensors stay on disk.

    Args:
        path: A dump.json.
        data_dir: Where its tensors are; default: `dump_tensor_data` beside it.
        beside: Dump of the other run: what is equal in both is held once.
    """
    if path.suffix == ".pkl":
        return _read_lines(path, data_dir)
    dump = Dump(path, data_dir or path.parent / "dump_tensor_data")
    has_data = False
    for where, name, value in dump_members(path):
        if where:
            has_data = True
            # Older files have it without a count.
            name = f"{name}.0" if name.endswith(".parameters_grad") else name
            other = None if beside is None else beside.entries.get(name)
            name = name if other is None else other.name
            try:
                entry = read_entry(name, value)
            except StateError as error:
                raise StateError(f"{path}: in {name[:120]!r}, {error}") from None
            dump.entries[name] = other if other is not None and other == entry else entry
        else:
            _take_head(dump, name, value)
    if not has_data and not dump.task:
        raise StateError(f"{path} is no dump: it has neither `task` nor `data`.")
    dump.framework = dump.framework or _framework(dump.entries)
    dump.parents = _parents(path.with_name("construct.json"), dump.entries)
    dump.entries = {name: dump.entries[name] for name in computed_order(dump.entries, dump.parents)}
    return dump


def _take_head(dump: Dump, name: str, value: object) -> None:
    """Reads the fields of a dump about itself."""
    if name in ("task", "framework", "tool") and isinstance(value, str):
        setattr(dump, name, printable(value))
    elif name == "environment" and isinstance(value, str):
        dump.environment = _environment(printable(value))
    elif name == "optimizer":
        dump.optimizer = settings_in(value)


def _read_lines(path: Path, data_dir: Path | None) -> Dump:
    """Returns the dump that ptdbg wrote: a line `[name, 1, [], type, shape, [max, min, mean]]` for each tensor."""
    dump = Dump(path, data_dir or path.with_suffix(""), framework="pytorch", tool="ptdbg")
    slots: dict[str, list[Slot]] = {}
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            if "stack_info" in line[:400]:
                continue
            try:
                name, _, _, dtype, shape, values, *_ = json.loads(line)
                prefix, api, count, direction, state, place = _LINE.fullmatch(name).groups()  # type: ignore[union-attr]
                # A scalar has its shape as text, a bool or empty tensor a list for each number.
                told = {"dtype": dtype, "shape": shape if isinstance(shape, list) else [], "data_name": f"{name}.npy"}
                numbers = [each if isinstance(each, (int, float)) else None for each in values]
                told |= dict(zip(("Max", "Min", "Mean"), numbers, strict=False))
                slot = read_tensor(told, f"{state}.{place or 0}", state)
            except (ValueError, TypeError, AttributeError, RecursionError):
                raise StateError(f"{path}: line {number} is no `[name, 1, [], type, shape, values]`.") from None
            slots.setdefault(printable(f"{prefix}.{api}.{count}.{direction}"), []).append(slot)
    for name, found in slots.items():
        dump.entries[name] = Entry(name, tuple(sorted(found, key=lambda slot: slot.state)))
    dump.task = "tensor" if dump.data_dir.is_dir() else "statistics"
    return dump


def computed_order(names: Iterable[str], parents: Mapping[str, str | None] | None = None) -> list[str]:
    """Returns the names as they were computed: a module after the calls inside it, gradients of parameters at the end.

    Other tools write gradients of parameters before the calls, and a module before the calls inside it.

    Args:
        names: In the order of the file.
        parents: The module around each call, where that is known.

    >>> computed_order(["Cell.a.A.parameters_grad.0", "Cell.a.A.forward.0", "Mint.add.0.forward"],
    ...                {"Mint.add.0.forward": "Cell.a.A.forward.0"})
    ['Mint.add.0.forward', 'Cell.a.A.forward.0', 'Cell.a.A.parameters_grad.0']
    """
    around = parents or {}
    calls = {name: split_name(name)[1] == "parameters_grad" for name in names}
    inside = Counter(around.get(name) for name in calls)
    order: list[str] = []
    waiting: dict[str, None] = {}
    for name, is_gradient in calls.items():
        waiting[name] = None
        here: str | None = None if is_gradient else name
        while here in waiting and not inside[here]:
            assert here is not None
            order.append(here)
            del waiting[here]
            here = around.get(here)
            inside[here] -= 1
    return [*order, *waiting]  # calls that are inside one another wait for ever


def stack_of(path: Path) -> dict[str, str]:
    """Returns the call stack of every name, from either form of stack.json."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise StateError(f"{path} holds no call stacks: an object is needed.")
    stacks = {}
    for key, value in found.items():
        if isinstance(value, list) and len(value) == 2 and isinstance(value[0], list):
            frames = _joined(value[1])
            stacks.update({printable(str(name)): frames for name in value[0]})
        else:
            stacks[printable(key)] = _joined(value)
    return stacks


def tensor_file(dump: Dump, slot: Slot) -> Path | None:
    """Returns the path of a slot's tensor, or None when the dump has none."""
    name = slot.data_name
    if name is None:
        return None
    if name in ("", ".", "..") or "/" in name or "\\" in name or not name.isprintable():
        raise StateError(f"the data name {name[:80]!r} is not the bare name of a file.")
    path = dump.data_dir / name
    if path.is_symlink() and os.path.dirname(os.path.realpath(path)) != os.path.realpath(dump.data_dir):
        raise StateError(f"the data file {name[:80]!r} is a link that leads out of its folder.")
    return path


def _number(pattern: re.Pattern[str], name: str) -> int | None:
    match = pattern.fullmatch(name)
    return int(match[1][:9] or 0) if match else None


def _rank(folder: Path) -> int | None:
    """Returns the rank of a folder; a single folder named after a process has rank 0."""
    if _PROCESS.fullmatch(folder.name) is None:
        return _number(_RANK, folder.name)
    others = [each for pattern in ("rank*", "proc*") for each in folder.parent.glob(pattern)]
    return _number(_PROCESS, folder.name) if len(others) > 1 else 0


def _environment(text: str) -> dict[str, str]:
    """Its parts: `MindSpore=2.9.0; device=CPU; ...`. Older dumps say `MindSpore 2.9.0 on CPU`."""
    return dict(part.split("=", 1) for part in text.split("; ") if "=" in part) or {"version": text}


def _framework(entries: dict[str, Entry]) -> str:
    dtypes = (slot.dtype for entry in entries.values() for slot in entry.slots if slot.scalar is None)
    first = next(dtypes, "")
    return "pytorch" if first.startswith("torch.") else "mindspore" if first else ""


def _parents(path: Path, entries: Mapping[str, Entry]) -> dict[str, str | None]:
    if not path.is_file():
        return {}
    found = read_json(path)
    if not isinstance(found, dict):
        raise StateError(f"{path} is no construct.json: an object is needed.")
    parents = ((printable(name), _parent(value)) for name, value in found.items())
    return {entries[name].name if name in entries else name: parent for name, parent in parents}


def _parent(value: object) -> str | None:
    # Some versions write [parent, micro step].
    if isinstance(value, list) and value:
        value = value[0]
    return sys.intern(printable(value)) if isinstance(value, str) else None  # many calls have one


def _joined(frames: object) -> str:
    each = frames if isinstance(frames, list) else [] if frames is None else [frames]
    return "\n".join(printable(line) for frame in each for line in str(frame).strip().splitlines())
