"""Fixtures of programs that are ended in any case."""

import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for real_programs.py
sys.path.append(str(Path(__file__).parents[2] / "docs" / "build"))  # for what the pages are made of

from real_programs import Starter, Webhook


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """See `Starter`; one set of programs serves the tests of a file."""
    starter = Starter(tmp_path_factory.mktemp("stack"))
    # Ended by SIGTERM, the interpreter would leave everything running.
    before = signal.signal(signal.SIGTERM, lambda *_: pytest.exit("ended by SIGTERM", 143))
    try:
        yield starter
    finally:
        try:
            starter.tell()
        finally:
            starter.stop_all()
            signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="module")
def webhook():
    """See `Webhook`."""
    hook = Webhook()
    try:
        yield hook
    finally:
        hook.close()
