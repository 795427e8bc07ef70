"""What `make wheels` leaves: one sdist and one wheel for every machine."""

import os
import zipfile
from pathlib import Path

import pytest

FOLDER = os.environ.get("WHEELS_FOLDER")
pytestmark = pytest.mark.skipif(FOLDER is None, reason="`make wheels` says in WHEELS_FOLDER where they are")


def test_there_are_an_sdist_and_a_wheel_of_pure_python():
    wheel, sdist = sorted(path.name for path in Path(FOLDER).iterdir())
    assert wheel.endswith("-py3-none-any.whl")
    assert sdist.endswith(".tar.gz")
    with zipfile.ZipFile(next(Path(FOLDER).glob("*.whl"))) as wheel:
        assert not [name for name in wheel.namelist() if name.endswith((".so", ".cpp", ".h"))]
