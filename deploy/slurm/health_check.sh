#!/bin/sh
# HealthCheckProgram= of slurm.conf, as root on each node: says in the system's log when nobody watches this node. With
# DRAIN=yes the node gets no jobs as long as that lasts. A device that computes wrongly is the fault handler's matter.
set -eu
test ! -r /etc/asd/slurm.env || . /etc/asd/slurm.env
node=${SLURMD_NODENAME:-$(hostname -s)}
reason='asd: the agent does not answer'

if curl -sf -m 5 -o /dev/null ${CURL_ARGS:-} "${AGENT:-http://127.0.0.1:9464}/healthz"; then
    # Only what this program has drained is given back.
    if [ "${DRAIN:-no}" = yes ] && scontrol -o show node "$node" | grep -q "Reason=$reason"; then
        scontrol update NodeName="$node" State=UNDRAIN
    fi
    exit 0
fi
logger -t asd -p daemon.err "$reason at ${AGENT:-http://127.0.0.1:9464}: nobody watches $node" || true
if [ "${DRAIN:-no}" = yes ] && ! scontrol -o show node "$node" | grep -q 'State=[A-Z+]*\(DRAIN\|DOWN\)'; then
    scontrol update NodeName="$node" State=DRAIN Reason="$reason"
fi
