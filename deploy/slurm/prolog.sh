#!/bin/sh
# Prolog= of slurm.conf, as root on each node: a folder for the runs of a job, into which only its user may write.
set -eu
runs=${RUNS:-/var/lib/asd/runs}/slurm
# This one is root's, so nobody can be there before.
mkdir -p -m 755 "$runs"
folder=$runs/$SLURM_JOB_ID
test -d "$folder" || mkdir "$folder"
chown "$SLURM_JOB_UID" "$folder"
chmod 755 "$folder"
