#!/bin/sh
# Prolog= of slurm.conf, as root on each node: a folder for the runs of a job, into which only its user may write. With
# PREFLIGHT=SECONDS each of DEVICES is tested before: where one computes wrongly Slurm drains the node and queues the job again.
set -eu
test ! -r "${SETTINGS:=/etc/asd/slurm.env}" || . "$SETTINGS"
runs=${RUNS:-/var/lib/asd/runs}/slurm
mkdir -p -m 755 "$runs"
# In a folder of root's nobody can be there before; one that a user made first is refused.
if test -L "$runs" || ! test -O "$runs"; then echo "$runs must be a folder of root's" >&2; exit 1; fi
folder=$runs/$SLURM_JOB_ID
test -d "$folder" || mkdir "$folder"
# Of a job that is queued again the folder may hold links, and reports that the job has made up.
chown "$(id -u)" "$folder"
chmod 755 "$folder"
rm -rf "$folder"/preflight-*.json
for device in ${PREFLIGHT:+$DEVICES}; do
    ASD_NODE=$SLURMD_NODENAME ${ASD:-asd} selftest --device "$device" --seconds "$PREFLIGHT" --run-dir "${runs%/slurm}" \
        --json >"$folder/preflight-$device.json" &
done
wait
# The report decides, not the exit code: an `asd` that can't start ends with 1 too.
if grep -qs '"failed": true' "$folder"/preflight-*.json; then exit 1; fi
# The epilog has made the files root's. A file with a second name may be another user's, and stays so.
find "$folder" -mindepth 1 -depth \( -type d -o -links 1 \) -execdir chown --no-dereference "$SLURM_JOB_UID" {} + || true
chown "$SLURM_JOB_UID" "$folder"
