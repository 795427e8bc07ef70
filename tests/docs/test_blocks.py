"""Every block of code in README, CONTRIBUTING and the documents is run, or parsed where it needs what is not here."""

import json
import re
import subprocess
import sys
from pathlib import Path

import figures
import generated
import pytest
from markdown import blocks, prose, written
from shell import KNOWN_VARIABLES, NAMES, targets, wrong_in_asd, wrong_in_script

from asd.cli import parser_of
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
PAGES = [path for path in figures.documents() if path.name not in ("CHANGELOG.md", "zoo.md")]
BLOCKS = [block for path in PAGES for block in blocks(path)]
KINDS = {"sh", "console", "python", "json", "yaml", "toml", "promql"}


def chosen(*languages, mark=None):
    """Blocks as parameters, each once however many pages have it."""
    found = {}
    for block in BLOCKS:
        if block.language in languages and (mark is None or mark in block.marks):
            found.setdefault((tuple(block.marks.items()), without_comments(block)), block)
    slow = [pytest.mark.slow, pytest.mark.timeout(1500)]
    return [
        pytest.param(block, id=block.place, marks=slow if "slow" in block.marks.get("run", "") else [])
        for block in found.values()
    ]


def without_comments(block):
    return re.sub(r"\s*#.*", "", block.text) if block.language in ("python", "sh") else block.text


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_block_says_what_it_is_and_is_well_formed(path):
    wrong = [block.place for block in blocks(path) if block.language not in KINDS]
    assert wrong == []
    assert written(path).count("\n```") == 2 * len(list(blocks(path)))


@pytest.mark.parametrize("block", chosen("sh"))
def test_a_script_is_well_formed_and_its_commands_and_settings_exist(block):
    assert wrong_in_script(block.text) == []


@pytest.mark.parametrize(
    "script",
    [
        *("asd nothing", "asd events --lvel first", "asd tune --nothing", "asd run --ranks 2 -- python nothing.py"),
        *("export ASD_RUEL=adaptive", "export ASD_RULE=adaptiv", "ASD_OPTIONS=confirm:2 asd env", "make nothing"),
        *("python benchmarks/nothing.py", "python -m nothing.here", "pip install 'mindspore-asd[nothing]'"),
        *("if true", "nothing --at all", "sbatch --wrap 'X=1 asd nothing'"),
    ],
)
def test_the_check_of_scripts_can_fail(script):
    assert wrong_in_script(script)


@pytest.mark.parametrize("block", chosen("sh", mark="run"))
def test_a_script_runs(block, work, environ):
    done = run(["bash", "-euo", "pipefail", "-c", block.text.replace("9464", str(free_port()))], work, environ)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("block", chosen("console"))
def test_a_session_prints_what_stands_there(block, work, environ):
    assert "run" in block.marks, f"{block.place}: what a session prints has to be run"
    (command, expected) = re.fullmatch(r"\$ ([^\n]*)\n(.*)", block.text, re.DOTALL).groups()
    assert wrong_in_script(command) == []
    done = run(["bash", "-euo", "pipefail", "-c", command], work, environ)
    assert done.returncode == 0, done.stderr
    told = [masked(line, work) for line in done.stdout.splitlines() if line.strip()]
    lines = [masked(line, work) for line in expected.splitlines() if line.strip()]
    if "part" in block.marks["run"]:
        rest = iter(told)
        assert [line for line in lines if line not in rest] == [], told
    else:
        assert told == lines


_VOLATILE = (
    (r"\d+\.\d+(?:e[+-]?\d+)?|\de[+-]\d+|(?<=\blimit[ =])\d+|(?<=\blimit of )\d+", "NUMBER"),
    (r"asd_run-\d{8}T\d{6}-\d+", "RUN"),
    (r"\b[0-9a-f]{32}\b", "ID"),
    (r"(?<=host=)\S+|(?<=node=\")[^\"]*", "HOST"),
)


def masked(line, work):
    """A line without what is another one each time: times, numbers that depend on the processor, this machine."""
    line = line.rstrip().replace(f"{work}/", "")
    for pattern, word in _VOLATILE:
        line = re.sub(pattern, word, line)
    return line


def run(command, work, environ, **options):
    return subprocess.run(
        command, cwd=work, env=environ, capture_output=True, text=True, check=False, timeout=1400, **options
    )


@pytest.mark.parametrize("preludes", [("none",), ("operators",), ("training", "dump")])
def test_python_runs(preludes, work, environ):
    asked = [
        [block.place, block.path.name, block.text, prelude]
        for block in (parameter.values[0] for parameter in chosen("python"))
        if (prelude := block.marks.get("with", "none")) in preludes
    ]
    assert asked
    done = run([sys.executable, HERE / "programs" / "blocks.py"], work, environ, input=json.dumps(asked))
    assert done.returncode == 0, f"{(done.stdout.splitlines() or ['nothing'])[-1]}\n{done.stderr[-3000:]}"
    assert [place for place, *_ in asked if place not in done.stdout.splitlines()] == []


@pytest.mark.parametrize("block", chosen("json"))
def test_json_is_what_its_reader_takes(block, tmp_path, monkeypatch):
    found = json.loads(block.text)
    if "task" in found:
        monkeypatch.chdir(tmp_path)
        from asd.dumps.record.debugger_config import DebuggerConfig

        assert DebuggerConfig.of(found) is not None


@pytest.mark.parametrize("block", chosen("yaml"))
def test_yaml_is_yaml(block):
    assert pytest.importorskip("yaml").safe_load(block.text)


@pytest.mark.parametrize("block", chosen("toml"))
def test_toml_is_toml_and_names_an_entry_point_group_of_ours(block):
    (group,) = pytest.importorskip("tomllib").loads(block.text)["project"]["entry-points"]
    from asd.exporters.isolators import GROUP as ISOLATORS
    from asd.sinks import GROUP as SINKS

    assert group in (ISOLATORS, SINKS)


@pytest.mark.parametrize("block", chosen("promql"))
def test_a_query_asks_for_metrics_that_exist(block):
    known = set(re.findall(r"`(asd_\w+)`", generated.metrics() + generated.handler_metrics()))
    asked = set(re.findall(r"asd_\w+", block.text))
    assert asked
    assert {name for name in asked if re.sub("_bucket$", "", name) not in known} == set()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_commands_targets_and_variables_in_the_text_exist(path):
    wrong = []
    for code in re.findall(r"`([^`\n]+)`", prose(path)):
        words = code.split()
        variables = set(re.findall(r"\b(?:NPU_)?ASD_[A-Z_]*[A-Z]\b", code)) - {"ASD_ARGS"}
        wrong += [code] * bool(variables - KNOWN_VARIABLES)
        if words[0] == "asd" and len(words) > 1:
            wrong += wrong_in_text(words)
        if words[0] == "make" and len(words) > 1 and words[1].isascii():
            wrong += [code for word in words[1:] if "=" not in word and word not in targets() and word.islower()]
    assert wrong == []


def wrong_in_text(words):
    """A command in the text may leave out arguments; its options must exist."""
    if words[1] in ("-f", "--help", "--version", "COMMAND"):
        return []
    if words[1] not in NAMES:
        return [" ".join(words)]
    known = set(parser_of(words[1])._option_string_actions)
    upto = words.index("--") if "--" in words else len(words)
    options = [word.split("=")[0] for word in words[2:upto] if word.startswith("-")]
    return [f"asd {words[1]} has no {option}" for option in options if option not in known]


def test_the_check_of_commands_in_the_text_can_fail():
    assert wrong_in_text(["asd", "nothing"])
    assert wrong_in_text(["asd", "events", "--lvel", "first"])
    assert wrong_in_asd(["handler", "--strikes"])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_files_that_a_page_names_are_there(path):
    named = re.findall(r"`((?:benchmarks|examples|exporters|operators|asd|tests|deploy|docs)/[\w./-]+)`", prose(path))
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_readme_is_short(name):
    assert (ROOT / name).read_text().count("\n") <= 180
