"""Before a job gets its devices: they are tested, and the prolog of Slurm gives it a folder for its runs."""

import os
import subprocess
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
MADE_UP = 'echo "$ASD_NODE $*"\ncase $* in *Ascend:1*) echo " \\"failed\\": {failed},"; exit {code};; esac\n'
JOB = {"SLURMD_NODENAME": "n8", "SLURM_JOB_ID": "42"}


# A Python that can't even import `asd` ends with 1 too, and says nothing of the device.
@pytest.mark.parametrize(("code", "failed"), [(0, "false"), (1, "true"), (1, "false"), (3, "false")])
def test_a_node_gets_no_job_while_a_device_of_it_computes_wrongly(tmp_path, code, failed):
    program = tmp_path / "asd"
    program.write_text("#!/bin/sh\n" + MADE_UP.format(code=code, failed=failed))
    program.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "ASD_NODE": "n7"}
    yaml = pytest.importorskip("yaml")
    (job,) = yaml.safe_load_all((DEPLOY / "kubernetes" / "jobs" / "volcano.yaml").read_text())
    (first,) = job["spec"]["tasks"][0]["template"]["spec"]["initContainers"]
    done = subprocess.run([*first["command"], *first["args"]], env=environ, capture_output=True, text=True)
    tested = {f"n7 selftest --device Ascend:{number} --seconds 30 --run-dir /runs --json" for number in range(8)}
    assert (done.returncode == 0, {*done.stdout.splitlines()} >= tested) == (failed == "false", True)

    (tmp_path / "slurm.env").write_text(f"RUNS={tmp_path}/runs\nPREFLIGHT=5\nDEVICES='Ascend:0 Ascend:1'\n")
    environ |= {**JOB, "SETTINGS": f"{tmp_path}/slurm.env", "SLURM_JOB_UID": str(os.getuid())}
    done = subprocess.run(["sh", DEPLOY / "slurm" / "prolog.sh"], env=environ, capture_output=True, text=True)
    assert (done.returncode == 0, done.stderr) == (failed == "false", "")
    report = (tmp_path / "runs" / "slurm" / "42" / "preflight-Ascend:1.json").read_text()
    assert report.splitlines()[0] == f"n8 selftest --device Ascend:1 --seconds 5 --run-dir {tmp_path}/runs --json"


def run_script(name, runs, **more):
    environ = {"PATH": os.environ["PATH"], **JOB, "SLURM_JOB_UID": str(os.getuid()), "RUNS": str(runs), **more}
    return subprocess.run(["sh", DEPLOY / "slurm" / name], env=environ, capture_output=True, text=True)


def test_a_job_that_left_nothing_leaves_no_folder(tmp_path):
    for used in (False, True):
        assert run_script("prolog.sh", tmp_path).returncode == 0
        if used and os.geteuid() == 0:  # only root can give files away
            (tmp_path / "slurm" / "42" / "x").touch()
        assert run_script("epilog.sh", tmp_path).returncode == 0
        assert (tmp_path / "slurm" / "42").exists() == (used and os.geteuid() == 0)


@pytest.mark.parametrize("how", ["link", "owner"])
def test_the_prolog_trusts_no_folder_that_a_user_made_first(tmp_path, how):
    (tmp_path / "theirs").mkdir()
    if how == "link":
        (tmp_path / "slurm").symlink_to("theirs")
    elif os.geteuid() == 0:
        (tmp_path / "slurm").mkdir()
        os.chown(tmp_path / "slurm", 1001, 1001)
    else:
        pytest.skip("only root can give a folder away")
    done = run_script("prolog.sh", tmp_path)
    assert (done.returncode, done.stderr) == (1, f"{tmp_path}/slurm must be a folder of root's\n")
    assert not (tmp_path / "slurm" / "42").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_job_that_is_queued_again_goes_on_with_its_own_files_and_gets_nobody_elses(tmp_path):
    folder, precious = tmp_path / "slurm" / "42", tmp_path / "precious"
    precious.touch()

    def run(name):
        done = run_script(name, tmp_path, SLURM_JOB_UID="1001", PREFLIGHT="5", DEVICES="A", ASD="true")
        assert done.returncode == 0, done.stderr

    run("prolog.sh")
    (own := folder / "job" / "events-rank0.jsonl").parent.mkdir()
    own.write_text("its event")
    for link in ("link", "preflight-A.json"):
        (folder / link).unlink(missing_ok=True)
        (folder / link).symlink_to(precious)
    (folder / "hard").hardlink_to(precious)
    run("epilog.sh")
    precious.write_text("precious")
    run("prolog.sh")
    assert [each.stat().st_uid for each in (folder, own.parent, own, precious)] == [1001, 1001, 1001, 0]
    assert (own.read_text(), precious.read_text()) == ("its event", "precious")
