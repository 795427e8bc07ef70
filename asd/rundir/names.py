"""Names and places of a run's files; no other module has them.

- `events-rank0.jsonl`: events of rank 0; older ones in `events-rank0.jsonl.1`, `.2`, and so on
- `events-ingest.jsonl`: events read from the vendor's logs
- `events-stress.jsonl`: results of stress tests of devices
- `status-rank0.json`: counts of rank 0, rewritten about once a second, with a hidden lock file beside it
- `values-rank0.jsonl`: feature values of rank 0, if they are recorded; older ones in `.1`, `.2`, and so on
- `evidence/RUN/rank0-step7`: evidence about the anomalies of one step
- `handler.sqlite`, `events-handler.jsonl`: state and isolations of the fault handler
- `supervisor.json`, `checkpoints-rank0.json`, `logs/RUN`: files of `asd run --ranks`
- `ingest.cursor.json`: position of `asd ingest`, with a lock file beside it while that runs
"""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

WITHIN_A_RUN = frozenset({"evidence", "logs"})  # subfolders that belong to a run

_EVENTS = re.compile(r"events-(?:rank-?\d+|ingest|handler|stress)\.jsonl(?:\.(\d+))?", re.ASCII)
_VALUES = re.compile(r"values-rank-?\d+\.jsonl(?:\.(\d+))?", re.ASCII)
_STATUS = re.compile(r"status-rank-?\d+\.json", re.ASCII)
_OF_A_RANK = re.compile(r"events-(?:rank-?\d+|ingest|stress)\.jsonl(?:\.\d+)?|status-rank-?\d+\.json", re.ASCII)
_LONGEST = 100  # characters of a run's name in a folder's name; file systems take 255 bytes


def event_file(run_dir: Path, rank: int) -> Path:
    """Returns the event log of `rank`."""
    return run_dir / f"events-rank{rank}.jsonl"


def ingest_file(run_dir: Path) -> Path:
    """Returns the event log of `asd ingest`, which reads the vendor's logs."""
    return run_dir / "events-ingest.jsonl"


def stress_file(run_dir: Path) -> Path:
    """Returns the event log of stress tests."""
    return run_dir / "events-stress.jsonl"


def event_files(run_dir: Path) -> list[Path]:
    """Returns every event log of a run, with rotated ones, the oldest of each first; empty without a folder."""
    return event_files_among(_files(run_dir))


def event_files_among(paths: Iterable[Path]) -> list[Path]:
    """Returns the event logs among the files of one folder, in the order of `event_files`."""
    return _oldest_first(paths, _EVENTS)


def is_of_a_rank(name: str) -> bool:
    """Returns whether a file of this name makes its folder a run's; files of a fault handler do not."""
    return _OF_A_RANK.fullmatch(name) is not None


def value_file(run_dir: Path, rank: int) -> Path:
    """Returns the file of recorded feature values of `rank`."""
    return run_dir / f"values-rank{rank}.jsonl"


def value_files(run_dir: Path) -> list[Path]:
    """Returns all files of recorded feature values of a run, in the order of `event_files`."""
    return _oldest_first(_files(run_dir), _VALUES)


def status_file(run_dir: Path, rank: int) -> Path:
    """Returns the status file of `rank`."""
    return run_dir / f"status-rank{rank}.json"


def status_files(run_dir: Path) -> list[Path]:
    """Returns the status file of every rank."""
    return status_files_among(_files(run_dir))


def status_files_among(paths: Iterable[Path]) -> list[Path]:
    """Returns the statuses among the files of one folder, in the order of `status_files`."""
    return sorted(path for path in paths if _STATUS.fullmatch(path.name) and path.is_file())


def evidence_folder(run_dir: Path, run: str, rank: int, step: int) -> Path:
    """Returns the folder with the evidence of one step of one rank."""
    # No slash; and "." or ".." would be another folder.
    name = quote(run, safe=" ", errors="surrogatepass").replace(".", "%2E") or "%"
    if len(name) > _LONGEST:
        name = f"{name[:_LONGEST]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return run_dir / "evidence" / name / f"rank{rank}-step{step}"


def cursor_file(run_dir: Path) -> Path:
    """Returns the file with the position of `asd ingest`."""
    return run_dir / "ingest.cursor.json"


def _oldest_first(paths: Iterable[Path], pattern: re.Pattern[str]) -> list[Path]:
    found = [(match, path) for path in paths if (match := pattern.fullmatch(path.name))]
    rank_and_age = ((path.name.partition(".jsonl")[0], -int(match.group(1) or 0), path) for match, path in found)
    return [path for *_, path in sorted(rank_and_age)]


def _files(run_dir: Path) -> list[Path]:
    try:
        return [path for path in run_dir.iterdir() if path.is_file()]
    except (FileNotFoundError, NotADirectoryError):
        return []
