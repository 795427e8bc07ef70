"""Name of a job by its scheduler or launcher: the same for all its processes, on all its nodes."""

import re
from collections.abc import Mapping

_LONGEST = 100
_OWN = re.compile(r"localhost|127\..*|::1|0\.0\.0\.0", re.ASCII)


def job_name(environ: Mapping[str, str], node: str) -> str:
    """Returns the name of the job of a process with this environment; empty if unknown.

    The scheduler comes first, the launcher of its processes second: two launches within one allocation are two jobs.

    Args:
        environ: Environment of the process.
        node: Name of its machine, for a scheduler that only this machine can reach.

    >>> job_name({"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0"}, "n1")
    'slurm-4711.0'
    >>> job_name({"MS_SCHED_HOST": "10.0.0.1", "MS_SCHED_PORT": "8118"}, "n1")
    'msrun-10.0.0.1-8118'
    """
    host, port = environ.get("MS_SCHED_HOST", ""), environ.get("MS_SCHED_PORT", "")
    launcher = f"{node if _OWN.fullmatch(host) else host}-{port}" if host and port else ""
    queue = _queue(environ, node, started_by_msrun=bool(launcher))
    name = "-".join(filter(None, [queue or ("msrun" if launcher else ""), launcher]))
    return re.sub(r"[^A-Za-z0-9_.:-]", "_", name, flags=re.ASCII)[:_LONGEST]


def attempt_of(environ: Mapping[str, str]) -> int:
    """Returns the attempt of its job, from 1, as far as Slurm reports it."""
    count = environ.get("SLURM_RESTART_COUNT", "") if environ.get("SLURM_JOB_ID") else ""
    return int(count) + 1 if re.fullmatch("[0-9]{1,6}", count, re.ASCII) else 1


def _queue(environ: Mapping[str, str], node: str, *, started_by_msrun: bool) -> str:
    job = environ.get("SLURM_JOB_ID")
    if job:
        # Each srun is a step, and msrun may have a separate step on each of its nodes.
        step = "" if started_by_msrun else environ.get("SLURM_STEP_ID", "")
        return f"slurm-{job}.{step}" if step else f"slurm-{job}"
    if environ.get("MINDX_TASK_ID"):
        return f"mindcluster-{environ['MINDX_TASK_ID']}"
    index = environ.get("JOB_COMPLETION_INDEX")
    if index:  # a pod of an indexed Job is called JOB-INDEX
        pod = environ.get("HOSTNAME") or node
        return f"kubernetes-{pod.removesuffix(f'-{index}')}"
    mpi = environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid")
    return f"mpi-{mpi}" if mpi else ""
