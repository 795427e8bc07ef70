"""Programs that compile for Ascend where there is none."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for empty_cann.py and compile_matrix.py

from compile_matrix import Cell, compile_cells
from empty_cann import build


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """A function that compiles a cell of the matrix, once, and returns what is known about it."""
    cann, done = [], {}

    def run(*words):
        cell = Cell(*words)
        if cell not in done:
            cann.extend([] if cann else [build(tmp_path_factory.mktemp("cann"))])
            together = [each for each in dict.fromkeys((cell._replace(protection="none"), cell)) if each not in done]
            done.update(compile_cells(cann[0], tmp_path_factory.mktemp("rank"), together, timed=False))
        assert done[cell]["compiled"], done[cell]["error"]
        return done[cell]

    return run
