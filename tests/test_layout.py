"""The shape of the package: folders, links, pins, and who may load what."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import asd

ROOT = Path(__file__).resolve().parents[1]
HEAVY = {"mindspore", "mindformers", "numpy", "prometheus_client", "lightkube"}

in_checkout = pytest.mark.skipif(not (ROOT / "pyproject.toml").is_file(), reason="only the source tree has this")


def heavy_modules_after(code):
    """What of it a new interpreter has loaded then, which finds the package these tests are for."""
    command = [sys.executable, "-c", f"{code}\nimport json, sys; print(json.dumps(list(sys.modules)))"]
    environ = {**os.environ, "PYTHONPATH": str(Path(asd.__file__).parents[1])}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    return HEAVY & set(json.loads(done.stdout.splitlines()[-1]))


@in_checkout
@pytest.mark.parametrize("name", ["operators", "exporters", "demo"])
def test_the_folder_inside_asd_is_a_link_and_never_a_second_copy(name):
    path = ROOT / "asd" / name
    assert path.is_symlink() or path.is_file(), f"{path} is a real folder: edits in {name}/ would not be seen"


@in_checkout
def test_the_packages_of_pyproject_are_the_folders_with_an_init_file():
    settings = pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {"asd": "asd", **settings["package-dir"]}
    found = {
        ".".join((package, *init.parent.relative_to(ROOT / folder).parts))
        for package, folder in folders.items()
        for init in (ROOT / folder).rglob("__init__.py")
        if not any(path.is_symlink() for path in init.parents)
    }
    assert set(settings["packages"]) == found


@in_checkout
def test_no_init_file_under_tests_shadows_the_package():
    assert not list((ROOT / "tests").rglob("__init__.py"))


@in_checkout
@pytest.mark.parametrize("name", ["constraints.txt", "constraints-2.10.txt"])
def test_every_line_of_the_constraints_is_a_plain_pin(name):
    lines = (ROOT / name).read_text().splitlines()
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.+!]*", line)] == []


def files_below(folder):
    """What a wheel must have; links are followed."""
    found = {
        Path(place, name).relative_to(folder) for place, _, names in os.walk(folder, followlinks=True) for name in names
    }
    return {path for path in found if path.suffix != ".pyc"}


def test_what_is_installed_has_every_file_of_the_checkout(pytestconfig):
    """`make wheel-test` runs this on the wheel, with the settings of the checkout."""
    checkout = files_below(pytestconfig.inipath.parent / "asd")
    assert len(checkout) > 300
    assert files_below(Path(asd.__file__).parent) - {Path("commit.txt")} == checkout


@in_checkout
def test_chart_image_and_pages_are_of_this_version():
    chart = (ROOT / "deploy" / "helm" / "mindspore-asd" / "Chart.yaml").read_text()
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("kubernetes*.md"))
    found = re.findall(r"(?i)(?:^|app)version: (\S+)", chart, re.MULTILINE)
    found += re.findall(r"mindspore[-_]asd[:-](\d+\.\d+\.\d+)", pages)
    assert len(found) > 6
    assert set(found) == {asd.__version__}


@pytest.mark.parametrize(("modules", "heavy"), [("asd", set()), ("asd, numpy", {"numpy"}), ("asd.exporters", None)])
def test_importing_asd_loads_nothing_heavy_and_exporters_no_mindspore(modules, heavy):
    found = heavy_modules_after(f"import {modules}")
    assert not found & {"mindspore", "mindformers"} if heavy is None else found == heavy


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["env"], ["events", "--help"], ["handler", "--help"]])
def test_these_commands_load_nothing_heavy(arguments):
    assert heavy_modules_after(f"from asd.cli import main; assert main({arguments}) == 0") == set()


def folders_of_the_package():
    for folder in ("asd", "operators", "exporters"):
        for place in [ROOT / folder, *(ROOT / folder).rglob("*")]:
            names = place.relative_to(ROOT).parts
            linked = place.is_symlink() or names[:2] in (("asd", "operators"), ("asd", "exporters"))
            if place.is_dir() and not linked and "__pycache__" not in names:
                yield place


@in_checkout
def test_no_folder_holds_more_than_fourteen_files_of_python():
    found = {str(place.relative_to(ROOT)): len(list(place.glob("*.py"))) for place in folders_of_the_package()}
    assert found["asd"] > 5
    assert {place: number for place, number in found.items() if number > 14} == {}


PRIVATE = re.compile(
    r"from mindspore[\w.]*\._\w+|from mindspore[\w.]* import [^#\n]*\b_\w|\.(_cells|_params|_primitives|_grad_node"
    r"|_unique_id|_pynative_executor|_cell_graph_executor|_JitExecutor|_CellGraphExecutor)\b"
)


@in_checkout
def test_private_names_of_mindspore_are_in_one_room():
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "operators").rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if PRIVATE.search(line) and path.parent.name != "private"
    ]
    assert found == []
