#!/bin/sh
# TaskProlog= of slurm.conf: what a training has to know, unless the job says it itself.
echo "export ASD_NODE=${ASD_NODE:-$SLURMD_NODENAME}"
echo "export ASD_RUN_DIR=${ASD_RUN_DIR:-${RUNS:-/var/lib/asd/runs}/slurm/$SLURM_JOB_ID}"
