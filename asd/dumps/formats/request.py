"""Parses compare.json, which names two runs to compare: with the keys of today's tools and of the older ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from asd.dumps.formats.json_file import read_json
from asd.errors import ConfigError, StateError

_KEYS = {
    "npu_path": "tested",
    "bench_path": "trusted",
    "stack_path": "stack",
    "target_path": "tested",
    "golden_path": "trusted",
    "npu_pkl_path": "tested",
    "bench_pkl_path": "trusted",
    "npu_dump_data_dir": "tested_data",
    "bench_dump_data_dir": "trusted_data",
}
_LOG = "is_print_compare_log"


@dataclass(frozen=True)
class Request:
    """Request to compare two runs."""

    tested: Path  # dump.json of the run under test, or the folder of a rank, a step or a whole dump
    trusted: Path  # the same of the trusted run
    # stack.json of the run under test, for the column of call stacks; None for no such column
    stack: Path | None = None
    tested_data: Path | None = None  # folder of the tensors of the run under test, if not beside its dump
    trusted_data: Path | None = None  # the same of the trusted run
    log: bool = False  # whether every compared row is logged


def read_request(path: Path) -> Request:
    """Reads a compare.json; paths in it are relative to the current folder."""
    try:
        found = read_json(path, 1 << 20)
    except StateError as error:
        raise ConfigError("the input file", str(path), f"a compare.json is needed; {str(error).rstrip('.')}") from None
    if not isinstance(found, dict):
        raise ConfigError("the input file", str(path), "an object with npu_path and bench_path is needed")
    return parse_request(found)


def parse_request(found: Mapping[str, object]) -> Request:
    """Returns the request in the keys of a compare.json."""
    values: dict[str, Path] = {}
    for key, value in found.items():
        if key == _LOG:
            if not isinstance(value, bool):
                raise ConfigError(_LOG, value, "true or false")
        elif key not in _KEYS:
            raise ConfigError("a key of compare.json", key, f"the keys are {', '.join((*_KEYS, _LOG))}")
        elif value not in ("", None):
            values[_KEYS[key]] = _path(key, value)
    for key, name in (("npu_path", "tested"), ("bench_path", "trusted")):
        if name not in values:
            raise ConfigError(key, None, "compare.json must name both runs, by npu_path and bench_path")
    return Request(**values, log=found.get(_LOG) is True)


def _path(key: str, value: object) -> Path:
    if not isinstance(value, str) or "\0" in value:
        raise ConfigError(key, value, "the path of a file or folder")
    path = Path(value)
    if not path.exists():
        raise ConfigError(key, value, "there is nothing at that path")
    return path
