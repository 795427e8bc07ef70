"""What this package needs of MindSpore that may be gone with its next version."""

import ast
from pathlib import Path

import pytest

import asd.operators
from asd.operators.private import names

SOURCE = sorted(Path(asd.operators.__file__).parent.rglob("*.py"))


def at_the_top(path):
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


def test_no_private_name_of_mindspore_is_imported_at_the_top_of_a_module():
    found = [f"{path.name}: {name}" for path in SOURCE for name in at_the_top(path) if name.startswith("mindspore.")]
    assert found
    assert [name for name in found if "._" in name] == []


@pytest.mark.parametrize("version", ["2.7.1", "2.9.0", "2.10.9", "2.10.0rc1"])
def test_a_version_that_was_tried_is_no_reason_to_warn(version):
    assert names.newer_version(version) == ""


def test_of_an_unknown_newer_version_a_sentence_says_what_is_switched_off(monkeypatch):
    assert names.newer_version("2.11.0").endswith(": nothing is switched off")
    gone = names._NAMES["bprop_getters"]._replace(module="mindspore.ops.gone")
    monkeypatch.setitem(names._NAMES, "bprop_getters", gone)
    names.find.cache_clear()
    try:
        assert "layer of a sharded network" in names.newer_version("2.11.0")
        assert names.find("bprop_getters") is None
    finally:
        names.find.cache_clear()
