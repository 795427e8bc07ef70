"""For all tests."""

import itertools
import signal
from collections import Counter

import pytest
from hypothesis import settings

# A machine that is busy elsewhere must fail no test, and no run of `make test` depends on a draw. `make mutation` does
# with fewer examples than these; `make test-slow` draws many new ones, and those that fail become examples.
settings.register_profile("asd", deadline=None, max_examples=20, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=400)
settings.load_profile("asd")

# Where the tests themselves are started in the background, a shell has them and their children ignore an interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What starts whole programs is begun first: one process must not be left alone with a long file in the end.
LONG_FIRST = ("tests/e2e/", "tests/operators/", "tests/docs/")
MANY_SECONDS = 60
"""A session that took longer tells which files took most of it."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: not item.nodeid.startswith(LONG_FIRST))


def pytest_terminal_summary(terminalreporter):
    seconds = Counter()
    for report in itertools.chain(*terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid.split("::")[0]] += report.duration
    if seconds.total() > MANY_SECONDS:
        terminalreporter.section("slowest files")
        for file, taken in seconds.most_common(25):
            terminalreporter.write_line(f"{taken:7.1f}s {file}")
