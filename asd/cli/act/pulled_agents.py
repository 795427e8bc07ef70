"""Options of `asd handler` for the agents that it pulls from."""

from __future__ import annotations

import argparse
import contextlib
import resource
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from asd.errors import ConfigError
from asd.handler.inputs.agent_client import Access
from asd.handler.inputs.targets import FileJobs, FileTargets, TargetSource

if TYPE_CHECKING:
    from asd.exporters.isolators.slurm.node import SlurmJobs
    from asd.exporters.kubernetes.pods import JobPods

_MOST_FILES = 65536
_KUBERNETES = "kubernetes:"


class Agents(NamedTuple):
    """Agents to pull from."""

    sources: list[TargetSource]  # sources of agents
    access: Callable[[], Access]  # returns the TLS settings of connections
    hosts_of: Callable[[str], Collection[str]]  # returns the hosts of a job; none where no source knows them


def add_agent_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument(
        "--agents",
        action="append",
        default=[],
        metavar="FILE|kubernetes:NAMESPACE/LABEL=VALUE[:PORT]",
        help="pull events from the agents in FILE, in the JSON of Prometheus' file_sd, or from the pods of NAMESPACE "
        "with these labels; may be given several times",
    )
    parser.add_argument(
        "--agents-config",
        type=Path,
        metavar="FILE",
        help="certificates of the agents and of this handler, in the form of Prometheus' tls_config",
    )
    parser.add_argument(
        "--jobs",
        metavar="FILE|slurm|kubernetes:LABEL[@NAMESPACE,...]",
        help="nodes of each job: from JSON, from squeue, or from the pods whose LABEL is the run; without it, reports "
        "about other nodes count only if three or more agree",
    )


def read_agents(args: argparse.Namespace) -> Agents | None:
    """Reads the options; None without agents."""
    sources: list[TargetSource] = [_source(text) for text in args.agents]
    if not sources:
        for option, value in (("--agents-config", args.agents_config), ("--jobs", args.jobs)):
            if value is not None:
                raise ConfigError(option, str(value), "it goes with --agents")
        return None
    if args.jobs is None:
        return Agents(sources, _access(args.agents_config), lambda _job: ())
    jobs = _jobs(args.jobs)
    return Agents([*sources, jobs], _access(args.agents_config), jobs.hosts)


def _source(text: str) -> TargetSource:
    if not text.startswith(_KUBERNETES):
        return FileTargets(Path(text))
    from asd.exporters.kubernetes.pods import PodTargets

    return PodTargets(text.removeprefix(_KUBERNETES))


def _jobs(text: str) -> FileJobs | JobPods | SlurmJobs:
    if text == "slurm":
        from asd.exporters.isolators.slurm.node import SlurmJobs

        return SlurmJobs()
    if not text.startswith(_KUBERNETES):
        return FileJobs(Path(text))
    from asd.exporters.kubernetes.pods import JobPods

    return JobPods(text.removeprefix(_KUBERNETES))


def _access(path: Path | None) -> Callable[[], Access]:
    if path is None:
        return Access
    from asd.exporters.http.tls_files import ClientConfig

    return ClientConfig(path).current


def allow_many_files() -> None:
    """Raises the limit of open files, for a connection to every agent of a large cluster."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
