"""Classic functions of dump, overflow check and compare: a script that uses them changes only its import line.

    from asd.operators.ptdbg import register_hook, overflow_check, seed_all, set_dump_path, set_dump_switch
    from asd.operators.ptdbg import acc_cmp_dump

    seed_all()
    set_dump_path("./dump_data/npu")
    register_hook(net, acc_cmp_dump)        or: register_hook(net, overflow_check, overflow_nums=1)
    set_dump_switch("ON")
    ...
    set_dump_switch("OFF")

They are names for one `PrecisionDebugger` of the process. Everything between ON and OFF is one step. The files are
those of `PrecisionDebugger`, in `<path>/<tag>_v2.0/step{N}/rank{R}`; `compare` reads them and older ones.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn

from asd.dumps.record.debugger_config import DebuggerConfig
from asd.errors import ConfigError
from asd.operators.debugger.precision_debugger import PrecisionDebugger

_DEFAULT_TAG = "ptdbg_dump"
_path: list[Path] = [Path(f"./{_DEFAULT_TAG}_v2.0")]
_MODES = ("all", "list")
_PREFIXES = ("Functional", "Tensor", "Mint", "MintFunctional", "Primitive", "Torch")


def seed_all(seed: int = 1234, mode: bool = False) -> None:  # noqa: FBT001, FBT002 - the known call
    """Fixes the random numbers of Python, NumPy and MindSpore.

    Args:
        seed: From 0 to 2**32 - 1.
        mode: Also use deterministic kernels of MindSpore.

    Raises:
        ConfigError: `seed` is not such a number.
    """
    if type(seed) is not int or not 0 <= seed < 2**32:
        raise ConfigError("seed", seed, "it must be a whole number from 0 to 4294967295")
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - networks draw from the global generator
    ms.set_seed(seed)
    if mode:
        ms.set_deterministic(True)


def set_dump_path(fpath: str | Path | None = None, dump_tag: str = _DEFAULT_TAG) -> None:
    """Sets the folder of all results: `<fpath>/<dump_tag>_v2.0`.

    Args:
        fpath: Parent of the folder; by default the current folder.
        dump_tag: First part of the folder's name.

    Raises:
        ConfigError: `dump_tag` is empty or has a path in it.
    """
    if not isinstance(dump_tag, str) or not dump_tag or "/" in dump_tag or "\0" in dump_tag:
        raise ConfigError("dump_tag", dump_tag, "it must be a text without '/'")
    _path[0] = Path(fpath or ".") / f"{dump_tag}_v2.0"


def acc_cmp_dump(content: dict[str, Any]) -> None:
    """Sets `register_hook` to dump everything for a comparison."""
    content |= {"task": "tensor", "level": "L1", "tensor": {}}


def overflow_check(content: dict[str, Any]) -> None:
    """Sets `register_hook` to look for overflows."""
    content |= {"task": "overflow_check", "level": "L1", "overflow_check": {}}


class _Hooked:
    """State set up by `register_hook`; one per process."""

    def __init__(self) -> None:
        self.registered: DebuggerConfig | None = None  # settings that it was called with
        self.debugger: PrecisionDebugger | None = None
        self.net: nn.Cell | None = None
        self.steps = 0  # dumps that have ended since
        self.on = False

    def use(self, config: DebuggerConfig) -> None:
        """Uses these settings from the next ON; the numbers of steps continue."""
        if self.debugger is None or config != self.debugger.config:
            self.switch(False)
            self.debugger = PrecisionDebugger(config)
            for _ in range(self.steps):
                self.debugger.step()

    def switch(self, on: bool) -> None:  # noqa: FBT001 - a switch
        if self.debugger is None or on == self.on:
            return
        self.on = on
        if on:
            self.debugger.start(self.net)
            self.debugger.end_training_at_once()  # such a script has no stop()
            return
        self.debugger.stop()
        self.debugger.step()
        self.steps += 1


_hooked = _Hooked()


def register_hook(model: nn.Cell, hook: Callable[[dict[str, Any]], None], *, overflow_nums: int = 1) -> None:
    """Hooks `model`: with `acc_cmp_dump` for a dump between ON and OFF, with `overflow_check` from now on.

    Args:
        model: The network.
        hook: `acc_cmp_dump` or `overflow_check`; not both.
        overflow_nums: Overflows after which training ends, by an exception from the last overflowing call; -1: never.

    Raises:
        ConfigError: `hook` is another function, `model` is not a network, a value is wrong, or the other hook is
            registered already.
    """
    if hook not in (acc_cmp_dump, overflow_check):
        raise ConfigError("hook", getattr(hook, "__name__", hook), "it must be acc_cmp_dump or overflow_check")
    if not isinstance(model, nn.Cell):
        raise ConfigError("model", type(model).__name__, "it must be a mindspore.nn.Cell")
    content: dict[str, Any] = {"dump_path": str(_path[0])}
    hook(content)
    if content["task"] == "overflow_check":
        content["overflow_check"]["overflow_nums"] = overflow_nums
    before = _hooked.registered
    if before is not None and (before.task == "overflow_check") != (content["task"] == "overflow_check"):
        raise ConfigError("hook", hook.__name__, "a dump and an overflow check can't be on together")
    _hooked.switch(False)
    _hooked.registered = DebuggerConfig.of(content, "register_hook")
    _hooked.debugger, _hooked.net, _hooked.steps = None, model, 0
    _hooked.use(_hooked.registered)
    if content["task"] == "overflow_check":
        _hooked.switch(True)


def set_dump_switch(switch: str, mode: str = "all", scope: Sequence[str] = ()) -> None:
    """Begins (`ON`) or ends (`OFF`) a dump.

    Args:
        switch: `ON` or `OFF`.
        mode: `all`: everything; `list`: only the APIs that `scope` names.
        scope: Names of APIs, in the older style (`Functional_linear_145_backward`) or today's.

    Raises:
        ConfigError: A value is wrong, or `register_hook` was not called.
    """
    if switch not in ("ON", "OFF"):
        raise ConfigError("switch", switch, "it must be ON or OFF")
    if mode not in _MODES:
        raise ConfigError("mode", mode, f"it must be one of {', '.join(_MODES)}")
    registered = _hooked.registered
    if registered is None:
        raise ConfigError("switch", switch, "register_hook() has to be called before")
    if switch == "ON" and registered.task != "overflow_check":
        inner = {"list": [_todays_name(name) for name in scope]} if mode == "list" else {}
        content = {"task": "tensor", "level": "L1", "dump_path": str(registered.dump_path), "tensor": inner}
        _hooked.use(DebuggerConfig.of(content, "set_dump_switch"))
    _hooked.switch(switch == "ON")


def _todays_name(name: str) -> str:
    """Returns today's form of an API's name.

    >>> _todays_name("Functional_linear_145_backward")
    'Functional.linear.145.backward'
    """
    prefix, _, rest = name.partition("_")
    if "." in name or prefix not in _PREFIXES:
        return name
    direction = next((each for each in ("_forward", "_backward") if rest.endswith(each)), "")
    rest = rest[: len(rest) - len(direction)]
    api, _, number = rest.rpartition("_")
    if prefix == "Primitive":  # of `Primitive_reshape_flat_Reshape_0` the class is the last word
        api = ".".join(api.rsplit("_", 1))
    return f"{prefix}.{api}.{number}{direction.replace('_', '.')}" if number.isdigit() else name


def compare(input_param: Mapping[str, str], output_path: str | Path = "./out", **_: Any) -> Any:
    """Compares two dumps; writes and prints a `compare_result_{timestamp}.csv` in `output_path`.

    Args:
        input_param: `npu_pkl_path` and `bench_pkl_path`, or `npu_path` and `bench_path`; the folders of the tensors may
            be named too. If a rank has no `dump.pkl`, its dumps by `set_dump_switch` are used.
        output_path: Folder of the result.

    Raises:
        ConfigError: A path is missing.
    """
    from asd.dumps.compare.runs import compare_runs
    from asd.dumps.formats.request import parse_request  # reading is needed by a few programs only

    outcome = compare_runs(parse_request(_with_todays_paths(input_param)), Path(output_path))
    files = [file for pair in outcome.pairs for file in pair.files]
    print(*files, outcome.sentence, sep="\n")  # noqa: T201 - the classic scripts print nothing themselves
    return outcome


def _with_todays_paths(given: Mapping[str, str]) -> dict[str, str]:
    found = dict(given)
    for side in ("npu", "bench"):
        key, folder_key = f"{side}_pkl_path", f"{side}_dump_data_dir"
        path = Path(found.get(key) or "")
        dumps = sorted(path.parent.parent.glob(f"step*/{path.parent.name}/dump.json")) if path.suffix == ".pkl" else []
        if dumps and not path.exists():
            found[key] = str(dumps[0] if len(dumps) == 1 else path.parent.parent)
            found.pop(folder_key, None)  # the tensors are beside each dump.json
    return found
