"""Shell in documents, parsed: every command of ours by its own parser, every setting by its own reader."""

import argparse
import re
import shlex
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from asd.cli import ALIASES, COMMANDS, parser_of
from asd.config import Config
from asd.errors import ConfigError
from asd.settings.options import ASD_OPTIONS
from asd.settings.table import SET_BY_RUN, VARIABLES

ROOT = Path(__file__).resolve().parents[2]
NAMES = {*COMMANDS, *ALIASES.values()}
KNOWN_VARIABLES = {each.name for each in VARIABLES} | {ASD_OPTIONS, *SET_BY_RUN} | {"ZOO_SEED"}
_OTHERS = """
    break curl docker done echo for grep install journalctl kill kubectl mv openssl python3 sbatch scontrol sed sinfo
    sleep srun ssh systemctl systemd-sysusers systemd-tmpfiles umask
"""
OTHERS = set(_OTHERS.split())
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_ENDS = {"|", "||", "&&", ";", "&"}


def wrong_in_script(text):
    """A sentence for everything that is wrong in a script."""
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        return [done.stderr.strip()]
    found, exported = [], {}
    for command in commands(text):
        found += wrong_in_command(command, exported)
    return found


def commands(text):
    """The simple commands of a script, each a list of words."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words = []
        for word in [*lexer, ";"]:
            if word in _ENDS:
                if words:
                    yield words
                words = []
            else:
                words.append(word)


def wrong_in_command(words, exported=None):
    """What is wrong in one command; what it exports is added to `exported`."""
    exported = {} if exported is None else exported
    at = next((at for at, word in enumerate(words) if not _ASSIGNMENT.fullmatch(word)), len(words))
    settings, words = dict(word.partition("=")[::2] for word in words[:at]), words[at:]
    words = words[1:] if words[:1] == ["do"] else words
    words = words[: next((at for at, word in enumerate(words) if set(word) <= {"<", ">"}), len(words))]
    if words[:1] == ["export"]:
        exported |= dict(word.partition("=")[::2] for word in words[1:])
        words = []
    return wrong_in_settings(exported | settings) + (wrong_in_program(*words) if words else [])


def wrong_in_program(program, *words):
    """What is wrong in the words behind a program's name."""
    program = program.removeprefix("/opt/asd/bin/")
    checks = {"asd": wrong_in_asd, "make": wrong_in_make, "python": wrong_in_python, "pip": wrong_in_pip}
    if program in checks:
        return checks[program](list(words))
    if program not in OTHERS:
        return [f"nobody knows what `{program}` is"]
    # A command in a word, as of `sbatch --wrap`.
    return [sentence for word in words if " asd " in word for sentence in wrong_in_script(word)]


def wrong_in_settings(settings):
    """Settings that are none, or have a wrong value."""
    ours = {name: value for name, value in settings.items() if name.startswith(("ASD_", "NPU_ASD_", "MS_NPU_ASD_"))}
    found = [f"there is no variable {name}" for name in ours if name not in KNOWN_VARIABLES]
    try:
        Config.from_env({name: value for name, value in ours.items() if "$" not in value})
    except ConfigError as error:
        found.append(str(error))
    return found


def wrong_in_asd(words):
    """Arguments that `asd` does not take."""
    if words[:2] in (["-f", "mindspore"], ["-f", "pytorch"]):
        words = words[2:]
    if words in (["--help"], ["--version"]):
        return []
    if not words or words[0] not in NAMES:
        return [f"there is no command {' '.join(words)}"]
    rest = words[1:]
    if rest == ["--help"]:
        return []
    parser = parser_of(words[0])
    parser.error = _raise
    try:
        parser.parse_args(rest)
    except (argparse.ArgumentError, argparse.ArgumentTypeError, ValueError) as error:
        return [f"asd {' '.join(words)}: {error}"]
    inner = rest[rest.index("--") + 1 :] if "--" in rest else rest
    return wrong_in_command(inner) if words[0] == "run" and inner[:1] == ["python"] else []


def _raise(message):
    raise ValueError(message)


def wrong_in_make(words):
    """Targets that the Makefile has not."""
    return [f"make has no target {word}" for word in words if "=" not in word and word not in targets()]


@cache
def targets():
    """The targets that `make` alone lists."""
    return set(re.findall(r"^([a-z0-9.-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


def wrong_in_python(words):
    """Programs and modules that are not there."""
    if words[:1] == ["-m"]:
        known = (ROOT / words[1].replace(".", "/")).is_dir() or find_spec(words[1].partition(".")[0]) is not None
        return [] if known else [f"there is no module {words[1]}"]
    known = words[0] in ("train.py", "register.py", "dump.py") or (ROOT / words[0]).is_file()
    return [] if known else [f"there is no program {words[0]}"]


def wrong_in_pip(words):
    """Extras that the package has not."""
    extras = re.findall(r"^([a-z0-9]+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    asked = [names for word in words for names in re.findall(r"mindspore-asd\[(.*?)\]", word)]
    return [f"there is no extra {extra}" for extra in ",".join(asked).split(",") if extra and extra not in extras]
