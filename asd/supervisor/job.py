"""Runs a job from its first start to its end: attempt after attempt, each on devices that can be trusted."""

import contextlib
import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from asd.config import Config
from asd.errors import ConfigError, StateError
from asd.event import Event
from asd.handler import job_of
from asd.rundir.last_good import Choice, last_good
from asd.rundir.manifest import checkpoint_places, load_manifest, manifest_path
from asd.supervisor.attempt_watch import AttemptEnd, AttemptWatch
from asd.supervisor.cause import evidence, find_cause, find_urgent
from asd.supervisor.own_handler import DONE, FAILED, INTERRUPTED, NO_DEVICE_LEFT, TERMINATED, Devices, End, OwnHandler
from asd.supervisor.processes import Processes, launch
from asd.supervisor.record import Attempt, Record, load_record

_PAUSE = 0.1
_MOST_SKIPPED = 3
_REPLAY_SECONDS = 30.0  # longest time from an anomaly to its verdict
_TICK_SECONDS = 1.0
_GRACE_SECONDS, _SAVE_SECONDS = 5.0, 30.0  # for ranks to end, and to save at a signal, as Slurm and Kubernetes give
_PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
_WARNED_SECONDS = 3600.0  # longest time from such a signal to the end that it may have announced


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a job."""

    command: Sequence[str]  # the training's command line, resolved
    environ: Mapping[str, str]  # environment of the training
    config: Config  # the settings in that environment
    devices: Sequence[int]  # all devices; the first `ranks` are used first, the others are spares
    ranks: int  # number of ranks at a time
    max_restarts: int  # most restarts after a crash or a hang; restarts after an anomaly do not count
    hang_seconds: float  # seconds without a step of any rank after which the job is restarted; 0 for never


class Job:
    """Supervised training, which runs until it is done or no attempt can help.

    Args:
        say: Receives messages for users.
        tell: Receives each line that a rank prints, with its rank.
        publish: Receives the events of isolated and released devices.
        published: Returns whether an event of this id was published before.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        say: Callable[[str], None],
        tell: Callable[[int, str], None],
        publish: Callable[[Event], None],
        published: Callable[[str], bool],
    ) -> None:
        self._settings = settings
        self._say, self._tell = say, tell
        self._publish, self._published = publish, published
        self._run_dir = Path(settings.config.run_dir).absolute()
        self._devices = Devices(settings.devices, settings.ranks)
        self._record = Record("")
        self._handling: OwnHandler
        self._ticked = 0.0
        self._seen = 0  # events of the attempt
        self._complaint = ""
        self._signals: list[int] = []  # that end the job
        self._passing: list[int] = []  # that are for the ranks
        self._passed = -math.inf  # when the last one was passed on
        self._stops = settings.config.on_anomaly == "stop"  # if so, an anomaly ends an attempt
        self._restarts = 0  # after a crash or a hang

    def run(self) -> int:
        """Runs the job to its end; returns its exit code."""
        # The lease on the handler's database excludes any other supervisor or handler.
        node = self._settings.config.name_of_node()
        self._handling = OwnHandler(
            self._run_dir, node, self._devices, publish=self._publish, published=self._published, say=self._say
        )
        heeded = [signal.SIGINT, signal.SIGTERM, *_PASSED_ON]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as under nohup
            heeded.append(signal.SIGHUP)
        handlers = {number: signal.signal(number, self._note) for number in heeded}
        try:
            self._take_over()
            end = self._go_on() or self._attempts()
            self._record.done = end.code == DONE and not self._record.attempts[-1].interrupted
            self._save()
            self._say(end.reason)
            return end.code
        finally:
            self._handling.close()
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _take_over(self) -> None:
        """Loads the record of an earlier supervisor in this folder."""
        found = load_record(self._run_dir)
        name = self._settings.config.run
        # A launch with another number in its name continues the same job.
        if found is None or found.done or (name and job_of(name) != job_of(found.job)):
            self._record = Record(name or self._settings.config.name_of_run())
            if found is not None and self._record.job in {found.job, *found.runs()}:  # a name is of one attempt only
                self._record.earlier = found.earlier + len(found.attempts)
        else:
            self._record = found
            self._record.tried_again = False

    def _go_on(self) -> End | None:
        """Resumes an unfinished job of an earlier supervisor; returns its end if that is decided."""
        if not self._record.attempts:
            return None
        last = self._record.attempts[-1]
        out = ", ".join(map(str, sorted(self._devices.out)))
        self._say(f"continues {self._record.job} after {last.run}{f'; isolated: {out}' if out else ''}.")
        if last.judged:
            return None
        watch = self._watch(last)
        watch.read()  # its supervisor was killed before it could judge
        last.interrupted |= not any(watch.exits().values())
        return self._judge(last, watch)

    def _attempts(self) -> End:
        while not self._signals:
            devices = self._devices.choose()
            if not devices:
                return End(NO_DEVICE_LEFT, self._too_few())
            choice = self._resume() if self._record.attempts else self._beginning()
            if self._signals:  # reading large checkpoints takes long
                break
            attempt, ending, watch = self._attempt(devices, choice)
            if ending.done and not self._signals:
                attempt.judged, attempt.interrupted = True, time.monotonic() - self._passed < _WARNED_SECONDS
                how = "ended after a signal, and the same command continues it" if attempt.interrupted else "is done"
                return End(DONE, f"{attempt.run} {how}: {ending.reason}.")
            end = self._judge(attempt, watch, None if self._signals else ending)
            if end is not None and not self._signals:
                return end
        number = signal.Signals(self._signals[0])
        code = INTERRUPTED if number == signal.SIGINT else TERMINATED
        return End(code, f"{self._record.job} was ended by {number.name}, with all its processes.")

    def _attempt(self, devices: list[int], choice: Choice) -> tuple[Attempt, AttemptEnd, AttemptWatch]:
        """Runs one attempt of the job to its end."""
        number = self._record.earlier + len(self._record.attempts)
        resume_from = str(choice.path) if choice.path else ""
        run = f"{self._record.job}+{number + 1}" if number else self._record.job
        attempt = Attempt(run, devices, resume_from, choice.step, time.time())
        self._record.attempts.append(attempt)
        self._record.save(self._run_dir)  # without it the ranks would choose checkpoints by themselves
        places = ", ".join(f"rank {rank} on device {device}" for rank, device in enumerate(devices))
        self._say(f"{attempt.run} begins: {places}; from {resume_from or 'the beginning'}.")
        environ, folder = {**self._settings.environ, "ASD_RUN_DIR": str(self._run_dir)}, self._logs(attempt)
        processes = Processes(*launch(self._settings.command, environ, attempt, folder), folder)
        watch = self._watch(attempt)
        try:
            ending = self._wait(attempt, watch, processes)
        finally:
            asked, attempt.interrupted = len(self._signals), bool(self._signals)
            self._save()  # a scheduler may kill this process before the ranks have ended
            processes.stop(_SAVE_SECONDS if asked else _GRACE_SECONDS, lambda: len(self._signals) > asked)
        watch.read()
        with contextlib.suppress(StateError):  # the next one knows them
            self._handling.know(list(watch.ranks.values()))
        attempt.ended = time.time()
        return attempt, ending, watch

    def _wait(self, attempt: Attempt, watch: AttemptWatch, processes: Processes) -> AttemptEnd:
        while not self._signals:
            while self._passing:
                processes.tell_ranks(self._passing.pop(0))
                self._passed = time.monotonic()
            ending = watch.poll(processes.poll(), self._bad(attempt, watch))
            if ending is not None:
                return ending
            time.sleep(_PAUSE)
        return AttemptEnd(f"it was ended by {signal.Signals(self._signals[0]).name}")

    def _resume(self) -> Choice:
        places = [self._run_dir, *checkpoint_places(self._run_dir)]
        record, ranks = self._record, self._settings.ranks
        since, trust = record.attempts[0].began, {"together": True, "verified": record.hardware}
        choice = last_good(places, distrusted=record.distrusted, runs=record.runs(), since=since, ranks=ranks, **trust)
        if record.hardware and choice.manifest is not None and choice.manifest.verified:
            record.distrust(choice.step + 1)  # also after a later crash
        if choice.path is None and record.attempts[0].resume_from:
            choice = replace(self._beginning(), skipped=choice.skipped)
        more = len(choice.skipped) - _MOST_SKIPPED
        told = choice.skipped[:_MOST_SKIPPED] + ((f"{more} more checkpoints are skipped.",) if more > 0 else ())
        for sentence in (*told, choice.reason):
            self._say(sentence)
        return choice

    def _beginning(self) -> Choice:
        """Returns where the job begins: at the checkpoint that a user named for its first attempt, if any."""
        name = next((each.resume_from for each in self._record.attempts), self._settings.environ.get("ASD_RESUME_FROM"))
        if not name:
            return Choice(None, None, "")
        file, manifest = Path(name).absolute(), None
        if not file.is_file():
            raise ConfigError("ASD_RESUME_FROM", name, "it must be a checkpoint file that exists")
        with contextlib.suppress(StateError):  # without a manifest its step is not known
            manifest = load_manifest(manifest_path(file))
        return Choice(file, manifest, f"this job has no good checkpoint yet, so it begins again from {file}.")

    def _bad(self, attempt: Attempt, watch: AttemptWatch) -> str:
        """Returns why a device of a running attempt must not work any more; empty if there is no reason."""
        now, seen = time.time(), len(watch.events)
        if seen != self._seen or not 0 <= now - self._ticked < _TICK_SECONDS:
            self._ticked, self._seen = now, seen
            try:
                self._have_decided(attempt, watch, now)
                self._complaint = ""
            except StateError as error:
                if not self._complaint:  # it is retried, and the training goes on
                    self._say(str(error))
                self._complaint = str(error)
        out = [device for device in attempt.devices if device in self._devices.out]
        return f"device {out[0]} was isolated: {self._devices.out[out[0]]}" if out else ""

    def _have_decided(self, attempt: Attempt, watch: AttemptWatch, now: float) -> None:
        """Passes certain events to the fault handler: verdicts, and anomalies that get no verdict any more."""
        told = evidence(watch.events, attempt.devices)
        patience = math.inf if self._stops else _REPLAY_SECONDS
        self._handling.know(list(watch.ranks.values()))
        self._handling.tell([each for each in told if each.kind == "replay" or now - each.time > patience])
        self._handling.tick()

    def _judge(self, attempt: Attempt, watch: AttemptWatch, ending: AttemptEnd | None = None) -> End | None:
        """Decides what follows from an attempt that was not done."""
        attempt.step = watch.step
        finding = (find_cause if self._stops else find_urgent)(watch.events, attempt.devices)
        self._handling.tell(evidence(watch.events, attempt.devices))
        end, self._record.hardware = None, finding is not None and finding.kind == "persistent"
        is_own = attempt.resume_step > 0 and attempt.resume_from != self._record.attempts[0].resume_from
        if is_own and self._record.is_stuck() and (finding is None or finding.kind != "persistent"):
            self._record.distrust(attempt.resume_step)
            self._record.tried_again = False
            self._say(f"{attempt.resume_from} is no longer used: two attempts in a row made no progress from it.")
        elif finding is None:
            end = self._crashed(attempt, ending, watch) if ending is not None else None
        else:
            if finding.step:
                self._record.distrust(finding.step)
            end = self._handling.next_move(finding, self._record)
        attempt.judged = True
        self._save()
        return end

    def _crashed(self, attempt: Attempt, ending: AttemptEnd, watch: AttemptWatch) -> End | None:
        """Counts a restart after an end without an anomaly; returns an end when restarts are used up or useless."""
        logs = self._logs(attempt)
        self._restarts += 1
        if self._record.is_stuck():
            return End(FAILED, f"{ending.reason}; two attempts in a row made no step; the job ends; see {logs}.")
        if self._restarts > self._settings.max_restarts:
            return End(FAILED, f"{ending.reason}; {self._settings.max_restarts} restarts are used up; see {logs}.")
        of = f"restart {self._restarts} of at most {self._settings.max_restarts}"
        self._say(f"{ending.reason}, after step {watch.step}; no anomaly explains it: {of}; see {logs}.")
        return None

    def _too_few(self) -> str:
        out = "; ".join(f"device {device}: {reason}" for device, reason in sorted(self._devices.out.items()))
        choice = self._resume() if self._record.attempts else None
        advice = f" Resume elsewhere from {choice.path}." if choice is not None and choice.path else ""
        usable = len(set(self._devices.known) - set(self._devices.out))
        return f"too few devices are left, {usable} where {self._settings.ranks} are needed ({out}).{advice}"

    def _watch(self, attempt: Attempt) -> AttemptWatch:
        return AttemptWatch(self._run_dir, attempt, self._logs(attempt), self._settings.hang_seconds, self._tell)

    def _logs(self, attempt: Attempt) -> Path:
        return self._run_dir / "logs" / attempt.run.replace("/", "_")

    def _save(self) -> None:
        try:
            self._record.save(self._run_dir)
        except OSError as error:
            self._say(f"supervisor.json can't be written: {error.strerror or error}.")

    def _note(self, number: int, _frame: object) -> None:
        (self._passing if number in _PASSED_ON else self._signals).append(number)
