"""Every test of the command line begins in an empty folder, with no setting of the machine's."""

import os

import pytest


@pytest.fixture(autouse=True)
def _clean(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith(("NPU_ASD_", "ASD_", "ASCEND_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
