"""Every example in the documentation of the core is true."""

import doctest
import importlib
from pathlib import Path

import pytest

import asd

CORE = Path(asd.__file__).parent
MODULES = sorted(
    ".".join(["asd", *path.relative_to(CORE).with_suffix("").parts])
    for path in CORE.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8") and path.relative_to(CORE).parts[0] not in ("operators", "exporters")
)


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_show_what_happens(module):
    found = doctest.testmod(importlib.import_module(module))
    assert (found.failed, found.attempted > 0) == (0, True)
