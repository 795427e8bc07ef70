"""The engines that isolators are tried on."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for isolator_engines.py and its like

pytest.register_assert_rewrite("isolator_conformance")
