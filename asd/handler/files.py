"""Where the fault handler keeps what it knows and what it publishes."""

from __future__ import annotations

from pathlib import Path

__all__ = ["events_file", "state_file"]


def state_file(run_dir: Path, *, dry_run: bool = False) -> Path:
    """The database of the handler; a dry run has its own, so that it takes nothing from the handler in earnest."""
    return run_dir / ("handler-dry-run.sqlite" if dry_run else "handler.sqlite")


def events_file(run_dir: Path) -> Path:
    """The event log of isolations and recoveries; `asd.rundir.names.event_files` finds it too."""
    return run_dir / "events-handler.jsonl"
