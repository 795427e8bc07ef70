"""The command `asd`.

Every sub-command is a module with `add_arguments(parser)` and `run(args) -> int`. Its module is imported only when that
command is chosen, so `asd --help` is quick and needs no MindSpore.
"""

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from asd import __version__
from asd.errors import ASDError, ConfigError

GROUPS = {
    "train": {
        "demo": "train on a simulated faulty device: the fault is detected, attributed, and the device replaced",
        "run": "run a training command with detection on",
        "drill": "prove detection on this device, in your own training",
        "selftest": "test a device: all parts of detection, or known-answer tests",
        "env": "show the active settings and what this machine has",
        "tune": "propose thresholds for a budget of false alarms, from recorded values",
    },
    "watch": {
        "events": "print the events of a run, for people or for programs",
        "exporter": "serve the metrics and events of all ranks of this node to Prometheus",
        "ingest": "turn the alarms in the vendor's logs into the same events",
        "report": "write one HTML file about what happened in a run",
    },
    "act": {
        "handler": "follow events and isolate faulty devices",
        "devices": "show every device: health, strikes, verdicts, who isolated it",
    },
    "debug": {
        "compare": "compare the dumps of two runs and report where they first differ",
        "run_ut": "re-run every API call of a dump and compare it with float64",
    },
}
"""One line about each sub-command, by group of users; its module has its name, in the folder of the group."""

COMMANDS = {name: (f"asd.cli.{group}.{name}", line) for group, lines in GROUPS.items() for name, line in lines.items()}
"""Each sub-command: its module, and one line about it."""

ALIASES = {"run_ut": "acc_check"}  # names of sub-commands in other tools

_EXTRAS = {"mindspore": "mindspore", "mindformers": "mindformers", "lightkube": "k8s", "yaml": "web"}
"""Optional packages of commands, and the extra that installs each."""

_OK, _FAILED, _USAGE, _INTERRUPTED, _PIPE_CLOSED = 0, 1, 2, 130, 141

_EPILOG = """\
Examples:
  asd demo                       a corrupted gradient, found and refused, in a real training
  asd selftest                   test that all parts work on this device; two minutes, no model
  asd run python train.py        your own training, as with NPU_ASD_ENABLE=1
  asd env                        the active settings, and the source of each
  NPU_ASD_ENABLE=1 asd env       the same, with the environment of one command

exit codes: 0 done, 1 the job failed, 2 wrong usage or a wrong setting, 130 interrupted.
`asd COMMAND --help` explains one command."""


class _Parser(argparse.ArgumentParser):
    """Parser that reports wrong usage in one sentence, without a usage block."""

    def error(self, message: str) -> NoReturn:
        argument, colon, valid = message.partition(": has the value ")
        if colon:  # by one of our own types
            message = f"{argument.removeprefix('argument ')} has the value {valid}"
        self.exit(_USAGE, f"asd: {message}; see `{self.prog} --help`.\n")


class _Grouped(argparse.RawDescriptionHelpFormatter):
    """Formatter that lists the commands under the headings of `GROUPS`."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34)

    def add_argument(self, action: argparse.Action) -> None:
        if not isinstance(action, argparse._SubParsersAction):
            super().add_argument(action)
            return
        lines = {choice.dest: choice for choice in action._get_subactions()}
        for group, names in GROUPS.items():
            self.start_section(group)
            self.add_arguments([lines[name] for name in names])
            self.end_section()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code; no error that a user can cause ends in a traceback.

    Args:
        argv: The arguments without the program's name; `sys.argv` when None.
    """
    arguments = of_today(list(sys.argv[1:] if argv is None else argv))
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - `>&-` closed it
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        with contextlib.suppress(io.UnsupportedOperation):  # no name that a run or a file has may end a command
            sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # no error of ours: the interpreter's last flush goes to the null device
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except KeyboardInterrupt:
        return _say("interrupted.", _INTERRUPTED)
    except ASDError as error:
        return _say(str(error), _USAGE if isinstance(error, ConfigError) else _FAILED)
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        return _say(f"{error.filename}: {reason}." if error.filename is not None else f"{reason}.", _FAILED)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        advice = f"install it with the extra: mindspore-asd[{_EXTRAS[package]}]"
        return _say(f"`asd {arguments[0]}` needs {package}, which is not installed; {advice}.", _FAILED)
    return code


def _run(arguments: list[str]) -> int:
    chosen = next((argument for argument in arguments if not argument.startswith("-")), None)
    parser = _parser(chosen)
    try:
        args, unknown = parser.parse_known_args(arguments)
    except SystemExit as stop:  # argparse ends the process after --help and after wrong usage
        return int(stop.code or _OK)
    if unknown:  # argparse's own message points to the help of `asd`, which does not have the command's options
        command = f" {args.command}" if args.command else ""
        return _say(f"unrecognized arguments: {' '.join(unknown)}; see `asd{command} --help`.", _USAGE)
    if args.version:
        from asd.cli.shared.machine import commit

        print(f"asd {__version__} (commit {commit()})")
        return _OK
    if args.command is None:
        parser.print_help(sys.stderr)
        return _USAGE
    return int(args.run(args))


def parser_of(command: str) -> argparse.ArgumentParser:
    """Returns the parser of one sub-command with its description and options, for documents and their checks."""
    choices = next(
        action.choices for action in _parser(command)._actions if isinstance(action, argparse._SubParsersAction)
    )
    found: argparse.ArgumentParser = choices[command]
    return found


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    """Returns the parser; only the arguments of the chosen command are loaded."""
    parser = _Parser(
        prog="asd",
        description="Detects silent data corruption while a MindSpore model trains.",
        epilog=_EPILOG,
        formatter_class=_Grouped,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="show the version and stop")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, (module_name, help_line) in COMMANDS.items():
        aliases = [ALIASES[name]] if name in ALIASES else []
        command = commands.add_parser(
            name,
            aliases=aliases,
            help=help_line,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if chosen in (name, *aliases):
            module = import_module(module_name)
            command.description = module.__doc__
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return parser


def _say(sentence: str, code: int) -> int:
    print(f"asd: {sentence}", file=sys.stderr)
    return code


def of_today(arguments: list[str]) -> list[str]:
    """Replaces what other tools have: `-f mindspore`, which dumps say themselves, and `grad_compare`.

    `arguments` are without the program's name.
    """
    if arguments[:1] in (["-f"], ["--framework"]) and arguments[1:2] in (["mindspore"], ["pytorch"]):
        arguments = arguments[2:]
    if arguments[:1] != ["grad_compare"]:
        return arguments
    rest = arguments[1:]
    if len(rest) > 1 and not rest[0].startswith("-") and not rest[1].startswith("-"):
        rest = ["-tp", rest[0], "-gp", *rest[1:]]
    return ["compare", "--gradients", *rest]
