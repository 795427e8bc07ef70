"""The isolator `slurm`: drains the node of a device.

Slurm takes out whole nodes. The reason of the drain is the mark of ownership and names the code, the devices and their
events; the node is given back with the last of them. Slurm overwrites the reason of somebody else's drain without a
word, and exit codes of `scontrol` tell little, so the node is read before and after every change.
"""

import subprocess
from pathlib import Path

from asd.errors import IsolationError
from asd.exporters.isolators.marks import event_mark, label, plain, reason_for
from asd.exporters.isolators.options import seconds, text
from asd.exporters.isolators.slurm.node import NODE_NAME, NodeState, parse_node
from asd.isolator import Device, IsolationOwner

_PATH = r"[^\0\s][^\0\n]*"
_DENIED = ("invalid user id", "permission", "denied", "not authorized")
_UNKNOWN = "not found"
_MOST_SAID = 1 << 24
_NOT_STARTED = (126, 127)  # what `env` returns when it can't start the program


class Slurm:
    """Drains nodes with `scontrol`.

    Args:
        timeout: Seconds that one call of `scontrol` may take.
        scontrol: The program.
        conf: The `slurm.conf` to use; the usual one when it is empty.
    """

    name = "slurm"
    whole_nodes = True

    def __init__(self, *, timeout: float | str = 30.0, scontrol: str = "scontrol", conf: str = "") -> None:
        self._timeout = seconds("timeout", timeout)
        # Through `env`, as the environment is passed on and not read here; times and messages in the plain form.
        self._command = ["env", "LC_ALL=C", "SLURM_TIME_FORMAT=standard"]
        if conf:
            self._command.append("SLURM_CONF=" + text("conf", conf, _PATH, "it must be a path"))
        self._command.append(text("scontrol", scontrol, r"[^\0\s=]+", "it must be the name or the path of a program"))

    def nodes(self) -> list[str]:
        """Returns the nodes of the cluster; raises IsolationError if it does not say."""
        sinfo = str(Path(self._command[-1]).with_name("sinfo"))
        said = self._run(Device("", "", -1), "--noheader", "--Node", "--format=%N", program=sinfo).stdout
        return said[:_MOST_SAID].split()

    def held(self, device: Device) -> IsolationOwner:
        """Returns who isolated `device`, as `Isolator.held`: its node is drained, and the reason names the owner."""
        return self._read(device).held(label(device))

    def isolate(self, device: Device, reason: str, event_id: str) -> None:  # noqa: ARG002 - the event has the reason
        """Drains the node of `device`, as `Isolator.isolate`."""
        state = self._read(device)
        held = state.held(label(device))
        if held is IsolationOwner.OTHERS:
            why = f"with the reason {plain(state.reason, 200)!r}" if state.reason else "without a reason"
            raise self._error(device, f"someone else drained node {state.name} {why}; it is not changed", retry=False)
        if held is IsolationOwner.FREE:
            marks = {**(state.marks if state.drained else {}), label(device): event_mark(event_id)}
            self._update(device, "State=DRAIN", f"Reason={reason_for(marks)}", ours=True)

    def release(self, device: Device) -> None:
        """Takes the mark of `device` away and, with the last one, the drain, as `Isolator.release`."""
        state = self._read(device)
        if state.held(label(device)) is not IsolationOwner.OURS:
            return
        marks = {name: event for name, event in state.marks.items() if name != label(device)}
        # UNDRAIN leaves a node that is down as it is; RESUME would bring it up.
        self._update(device, *([f"Reason={reason_for(marks)}"] if marks else ["State=UNDRAIN"]), ours=False)

    def _read(self, device: Device) -> NodeState:
        node = self._node(device)
        done = self._run(device, "--oneliner", "show", "node", node)
        state = parse_node(done.stdout)
        if state is not None and state.name == node:
            return state
        if _UNKNOWN in done.stdout + done.stderr:
            raise self._error(device, f"Slurm has no node {node}; it must be a node that `sinfo -N` lists", retry=False)
        said = plain(done.stderr or done.stdout, 200)
        what = f"exit code {done.returncode}, {said!r}" if said else f"exit code {done.returncode} and no output"
        raise self._error(device, f"scontrol did not return the state of node {node}: {what}")

    def _update(self, device: Device, *change: str, ours: bool) -> None:
        """Changes the node and looks whether it is as it should be; the exit code may say either in both cases."""
        done = self._run(device, "update", f"NodeName={self._node(device)}", *change)
        state = self._read(device)
        if (state.held(label(device)) is IsolationOwner.OURS) is ours:
            return
        said = plain(done.stderr or done.stdout, 200)
        denied = any(word in said.lower() for word in _DENIED)
        found = f"its state is {'+'.join(sorted(state.flags))}, its reason {plain(state.reason, 200)!r}"
        raise self._error(
            device,
            f"scontrol update of node {state.name} had no effect ({said or 'no message'}); {found}",
            retry=not denied,
        )

    def _node(self, device: Device) -> str:
        node = device.host
        if not NODE_NAME.fullmatch(node):
            raise self._error(device, f"{plain(node, 80)!r} is not the name of one node", retry=False)
        return node

    def _run(self, device: Device, *arguments: str, program: str = "") -> subprocess.CompletedProcess[str]:
        program = program or self._command[-1]
        try:
            done = subprocess.run(
                [*self._command[:-1], program, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=self._timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise self._error(device, f"{program} did not answer within {self._timeout:g} s") from None
        except OSError as error:
            raise self._error(device, f"{program} can't be started: {error.strerror or error}") from error
        if done.returncode in _NOT_STARTED:
            raise self._error(device, f"{program} can't be started: {plain(done.stderr, 200)}", retry=False)
        return done

    def _error(self, device: Device, reason: str, *, retry: bool = True) -> IsolationError:
        return IsolationError(device, self.name, reason, retry=retry)
