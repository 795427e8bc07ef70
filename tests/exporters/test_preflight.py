"""Devices are tested before a job gets them: the prolog of Slurm, and the init container of a job."""

import os
import subprocess
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
MADE_UP = 'echo "$ASD_NODE $*"\ncase $* in *Ascend:1*) exit {code};; esac\n'


@pytest.mark.parametrize(("code", "job_begins"), [(0, True), (1, False), (3, True)])
def test_a_node_gets_no_job_while_a_device_of_it_computes_wrongly(tmp_path, code, job_begins):
    program = tmp_path / "asd"
    program.write_text("#!/bin/sh\n" + MADE_UP.format(code=code))
    program.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "ASD_NODE": "n7"}
    yaml = pytest.importorskip("yaml")
    (job,) = yaml.safe_load_all((DEPLOY / "kubernetes" / "jobs" / "volcano.yaml").read_text())
    (first,) = job["spec"]["tasks"][0]["template"]["spec"]["initContainers"]
    done = subprocess.run([*first["command"], *first["args"]], env=environ, capture_output=True, text=True)
    tested = {f"n7 selftest --device Ascend:{number} --seconds 30 --run-dir /runs --json" for number in range(8)}
    assert (done.returncode == 0, set(done.stdout.splitlines())) == (job_begins, tested)

    (tmp_path / "slurm.env").write_text(f"RUNS={tmp_path}/runs\nPREFLIGHT=5\nDEVICES='Ascend:0 Ascend:1'\n")
    environ |= {"SETTINGS": f"{tmp_path}/slurm.env", "SLURMD_NODENAME": "n8", "SLURM_JOB_ID": "42"}
    environ["SLURM_JOB_UID"] = str(os.getuid())
    done = subprocess.run(["sh", DEPLOY / "slurm" / "prolog.sh"], env=environ, capture_output=True, text=True)
    assert (done.returncode == 0, done.stderr) == (job_begins, "")
    report = (tmp_path / "runs" / "slurm" / "42" / "preflight-Ascend:1.json").read_text()
    assert report == f"n8 selftest --device Ascend:1 --seconds 5 --run-dir {tmp_path}/runs --json\n"
