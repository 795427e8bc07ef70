"""Shows every device: health, strikes, verdicts, who isolated it; releases one, notes a repair, drops a verdict."""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

from asd.cli.act.leading import check_leads
from asd.cli.shared.aligned import aligned
from asd.cli.shared.isolation import IsolationLog, open_isolator
from asd.cli.shared.options import add_run_dir, run_dir_of
from asd.errors import ConfigError, printable
from asd.exporters.report.fleet import BY, Group, groups
from asd.handler import Policy, Store
from asd.handler.act.executor import Executor
from asd.handler.act.release import ask_release, drop_verdict, find_device, note_repair
from asd.handler.db.cases import Cases
from asd.handler.db.fleet import Fleet
from asd.handler.db.store import existing, state_file
from asd.handler.device_record import DeviceRecord, device_records, policy_of
from asd.records import time_text

_EXAMPLES = """\
Examples:
  asd devices                              every device that the handler knows
  asd devices --health                     the three fields of `npu-smi info -t health`, for each device
  asd devices list node7 Ascend:3 --health     the three fields of one device
  asd devices --by firmware                faults per 1,000 device-days, and which firmware stands out
  asd devices release node7 Ascend:3       release it; its earlier strikes no longer count
  asd devices repaired node7 Ascend:3      delete its strikes and verdicts; an isolated device is released after a test
  asd devices repaired node7 Ascend:3 --serial SN2    the same after a replacement by SN2; SN1 keeps its strikes
  asd devices drop node7 Ascend:3          end the attempts to isolate or release it, if the scheduler always refuses

A running handler releases the device within its next cycle; otherwise this command does.

exit codes: 0 done, 1 the job failed, 2 wrong usage or no such device."""

_ACTIONS = ("list", "release", "drop", "repaired")
_HEAD = ["HOST", "DEVICE", "RANK", "HEALTH", "STRIKES", "VERDICTS", "STATE", "BY", "SINCE", "STRESS TEST", "EVIDENCE"]
_PATIENCE = 30.0  # seconds for a handler at work


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd devices`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("action", nargs="?", default="list", choices=_ACTIONS, help="action (default: list)")
    parser.add_argument("host", nargs="?", metavar="HOST", help="machine of the device")
    parser.add_argument("device", nargs="?", metavar="DEVICE", help="its name there, for example Ascend:3")
    parser.add_argument("--serial", default="", help="with `repaired`: serial of the new device, if it was replaced")
    parser.add_argument("--health", action="store_true", help="print Health Status, Error Code and Error Information")
    parser.add_argument("--by", choices=BY, help="rates of faults in groups of the devices that agents report")
    add_run_dir(parser)
    parser.add_argument(
        "--state", type=Path, metavar="FILE", help="the handler's database (default: RUN_DIR/handler.sqlite)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON array or object, for programs")


def run(args: argparse.Namespace) -> int:
    """Lists, releases, drops or notes a repair."""
    if (args.host is None) != (args.device is None) or (args.action != "list" and args.host is None):
        raise ConfigError("HOST DEVICE", args.host or "", "both must be given, for example node7 Ascend:3")
    if args.serial and args.action != "repaired":
        raise ConfigError("--serial", args.serial, "pass it only with repaired")
    folder = run_dir_of(args)
    store = Store(existing(args.state or state_file(folder)))
    try:
        if args.action == "list":
            return _list(args, store)
        check_leads(store)
        number = find_device(store, args.host, args.device)
        if args.action == "release":
            return _release(args, store, number, folder)
        return _drop(args, store, number) if args.action == "drop" else _repaired(args, store, number)
    finally:
        store.close()


def _list(args: argparse.Namespace, store: Store) -> int:
    if args.by:
        return _by(args, store)
    records = device_records(store, policy_of(store), time.time())
    if args.host is not None:
        number = find_device(store, args.host, args.device)
        records = [each for each in records if each.number == number]
    if args.json:
        print(json.dumps([each.to_json() for each in records], ensure_ascii=False, indent=1))
    elif args.health:
        for each in records:
            if args.host is None:
                print(printable(f"{each.host} {each.device}"))
            print("\n".join(f"{name:<30} : {value}" for name, value in each.health.items()))
    else:
        _print_table(records)
        if opened := store.number("breaker_opened"):
            print(f"The circuit breaker is open since {_moment(opened)}: faults are only reported.")
    return 0


def _by(args: argparse.Namespace, store: Store) -> int:
    found = groups(Fleet(store).used(), Fleet(store).faults(), args.by)
    if args.json:
        told = [{args.by: name, **dict(zip(Group._fields[1:], more, strict=True))} for (name,), *more in found]
        print(json.dumps(told, ensure_ascii=False, indent=1))
        return 0
    head = [args.by.upper(), "DEVICES", "DEVICE-DAYS", "FAULTS", "PER 1,000 DEVICE-DAYS (95 %)", "STANDS OUT"]
    rows = []
    for each in found:
        rate = "-" if each.rate is None else f"{each.rate:.3g} ({each.low:.3g} to {each.high:.3g})"
        out = f"yes (chance {each.chance:.2g})" if each.stands_out else "no"
        name = printable(each.names[0]) or "not known"
        rows.append([name, str(each.devices), f"{each.device_days:.2f}", str(each.faults), rate, out])
    print(aligned([head, *rows]) if rows else "No agent reported a training yet: the handler needs --agents.")
    return 0


def _print_table(records: list[DeviceRecord]) -> None:
    if not records:
        print("No device is known yet.")
        return
    places = Counter((each.host, each.device) for each in records)
    rows = [_row(each, replaced=places[each.host, each.device] > 1) for each in records]
    print(aligned([_HEAD, *([printable(text) for text in row] for row in rows)]))
    for each in records:
        if each.state != "in use" or each.isolated_by == "others":
            print(printable(f"{each.device} on {each.host}: {each.reason}.{_failure(each)}"))


def _failure(each: DeviceRecord) -> str:
    """Returns the scheduler's last failure and the time of the next try; empty for none."""
    if not each.error:
        return ""
    return f" Failed tries: {each.attempts}, the next at {_moment(each.next_try)}. Last failure: {each.error}."


def _moment(seconds: float) -> str:
    return time_text(seconds) if seconds else "-"


def _row(each: DeviceRecord, *, replaced: bool) -> list[str]:
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in each.verdicts.items() if count)
    stress = f"{'passed' if each.sound else 'failed'} {_moment(each.tested)}" if each.tested else "-"
    return [
        each.host,
        f"{each.device} ({each.serial or 'no serial'})" if replaced else each.device,
        str(each.rank) if each.rank >= 0 else "-",
        each.health["Health Status"],
        f"{each.strikes}/{each.limit}",
        verdicts or "-",
        each.state,
        each.isolated_by or "-",
        _moment(each.since),
        stress,
        each.evidence or "-",
    ]


def _drop(args: argparse.Namespace, store: Store, number: int) -> int:
    name = f"{args.device} on {args.host}"
    if drop_verdict(store, number, time.time()):
        then = "it is not tried again; if the scheduler isolates it, release it there"
        return _answer(args, "dropped", f"{name}: its verdict was dropped, and {then}.")
    case = Cases(store).open_case(number)
    why = "its isolation is not pending" if case is None else f"its case is {case.state}; `asd devices release` ends it"
    return _answer(args, "nothing", f"{name}: {why}.")


def _repaired(args: argparse.Namespace, store: Store, number: int) -> int:
    what = f"it was replaced by {args.serial}" if args.serial else "it was repaired"
    is_out = note_repair(store, number, args.serial, time.time())
    test = f"asd selftest --device {args.device} --seconds 60 --run-dir D"
    then = f"it is released after `{test}` passes on it"
    sentence = f"{args.device} on {args.host}: {what}; {then if is_out else 'earlier events no longer count'}."
    return _answer(args, "test-wanted" if is_out else "cleared", sentence)


def _release(args: argparse.Namespace, store: Store, number: int, folder: Path) -> int:
    name = f"{args.device} on {args.host}"
    before = ask_release(store, number, time.time())
    if not before:
        case = Cases(store).last(number)
        others = case is not None and case.state == "others"
        why = "someone else isolated it, and only they can release it" if others else "it is not isolated"
        return _answer(args, "nothing", f"{name}: {why}.")
    if before == "dry":
        return _answer(args, "released", f"{name}: it was isolated in a dry run only.")
    busy = store.take_lease()
    deadline = time.monotonic() + _PATIENCE
    if not busy:
        _release_here(store, number, Path(store.meta("home") or folder))
    while busy and time.monotonic() < deadline and Cases(store).open_case(number) is not None:
        time.sleep(0.05)
    case = Cases(store).last(number)
    if case is not None and case.closed is not None:
        why = case.why_released if case.state == "released" else "someone else isolated it; it was not changed"
        return _answer(args, case.state, f"{name}: {why}.")
    error = f" ({case.error})" if case is not None and case.error else ""
    print(printable(f"asd devices: {name} is still isolated{error}; a running handler retries."), file=sys.stderr)
    return 1


def _release_here(store: Store, number: int, folder: Path) -> None:
    """Releases this device as the handler would, because no handler is running."""
    name, options = json.loads(store.meta("isolator", '["none", []]'))
    case, now = Cases(store).open_case(number), time.time()
    if case is None:
        return
    log = IsolationLog(folder)
    engine = Executor(store, Policy(), open_isolator(name, options, store), log, log.has)
    engine.carry_out(now, case.n)
    engine.publish(now)


def _answer(args: argparse.Namespace, action: str, sentence: str) -> int:
    print(json.dumps({"action": action, "reason": sentence}, ensure_ascii=False) if args.json else printable(sentence))
    return 0
