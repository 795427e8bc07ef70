#!/bin/sh
# Prolog= of slurm.conf, as root on each node: a folder for the runs of a job, into which only its user may write. With
# PREFLIGHT=SECONDS each of DEVICES is tested before: where one computes wrongly Slurm drains the node and queues the job again.
set -eu
test ! -r "${SETTINGS:=/etc/asd/slurm.env}" || . "$SETTINGS"
runs=${RUNS:-/var/lib/asd/runs}/slurm
# This one is root's, so nobody can be there before.
mkdir -p -m 755 "$runs"
folder=$runs/$SLURM_JOB_ID
test -d "$folder" || mkdir "$folder"
tests=
for device in ${PREFLIGHT:+$DEVICES}; do
    ASD_NODE=$SLURMD_NODENAME ${ASD:-asd} selftest --device "$device" --seconds "$PREFLIGHT" --run-dir "${runs%/slurm}" \
        --json >"$folder/preflight-$device.json" &
    tests="$tests $!"
done
for test in $tests; do
    code=0
    wait "$test" || code=$?
    # Others say that it could not be tested, as while another job works on it, and are no reason.
    test "$code" -ne 1 || exit 1
done
chown "$SLURM_JOB_UID" "$folder"
chmod 755 "$folder"
