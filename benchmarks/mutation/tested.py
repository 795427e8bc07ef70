"""Runs the tests on mutants: a plugin of pytest, and the forks."""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.machinery
import importlib.util
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import pytest

from benchmarks.mutation.mutants import Mutant

SLOW = 1.0
"""A test that took more processor seconds is left out."""
ENDLESS = 10
"""A test of a mutant that takes more processor seconds is in an endless loop."""
WAITING = 600
"""The same for a mutant that waits, on a machine however busy."""
EXAMPLES = 30
"""Of hypothesis, where a test names no number."""
OPTIONS = (
    "-q",
    "-o",
    "addopts=",
    "-o",
    "timeout=0",
    "--import-mode=importlib",
    "--capture=no",
    "-m",
    "not slow and not stack and not zoo",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
)
MEMORY = "/dev/shm"
"""Where tests write: their files are gone in a moment, and a disk would be waited for."""


class Collected:
    """A plugin that collects the tests and then does something else with them than running them all.

    Args:
        act: Is called with the tests in the place of pytest's loop.
    """

    def __init__(self, act: Callable[[Collected, list[pytest.Item]], None]) -> None:
        self._act = act
        self.failed = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection(self) -> None:
        """After the settings of tests/conftest.py, before the tests read them."""
        from hypothesis import Phase, settings

        phases = [Phase.explicit, Phase.generate]
        settings.register_profile(
            "mutation", deadline=None, derandomize=True, database=None, max_examples=EXAMPLES, phases=phases
        )
        settings.load_profile("mutation")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In the place of running them all."""
        self._act(self, session.items)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps the first failure."""
        if report.failed:
            self.failed = self.failed or report.nodeid

    def run(self, items: Sequence[pytest.Item]) -> None:
        """Until one fails."""
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        for item, following in zip(items, [*items[1:], None], strict=True):
            resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + ENDLESS, hard))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                return


def collect(paths: Sequence[str], act: Callable[[Collected, list[pytest.Item]], None]) -> None:
    """Collects the tests of `paths` in this process and calls `act` with them."""
    pytest.main([*OPTIONS, *paths], plugins=[Collected(act)])


def warm_up() -> None:
    """Imports what the tests import besides the package, so that no copy of this process has to."""
    for name in ("cloudevents", "hypothesis", "msgspec", "numpy", "prometheus_client", "sqlite3", "unittest.mock"):
        importlib.import_module(name)


def fork(work: Callable[[], object], *, limited: bool) -> tuple[int, Any]:
    """Calls `work` in a copy of this process, and returns how that ended and what `work` returned, by JSON.

    Args:
        work: What the copy does.
        limited: Whether it is silent and is ended when it takes too long.
    """
    folder = tempfile.mkdtemp(prefix="mutation-", dir=MEMORY if Path(MEMORY).is_dir() else None)
    answer = Path(folder, "answer")
    sys.stdout.flush()
    child = os.fork()
    if not child:
        try:
            os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.tempdir = folder
            if limited:
                signal.alarm(WAITING)
                silence = os.open(os.devnull, os.O_RDWR)
                for stream in range(3):
                    os.dup2(silence, stream)
            answer.write_text(json.dumps(work()), encoding="utf-8")
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    found = json.loads(answer.read_text(encoding="utf-8")) if status == 0 else None
    shutil.rmtree(folder, ignore_errors=True)
    return status, found


class Test(NamedTuple):
    """A test that passes."""

    name: str  # as pytest calls it
    seconds: float  # of the processor, with its calls noted
    functions: Mapping[str, Sequence[str]]  # per file those that it calls, by the outermost one


def measure(root: Path, files: Sequence[str], paths: Sequence[str]) -> list[Test]:
    """The tests of `paths` that call anything in `files`, the quickest first."""
    places = {str(root / file): file for file in files}

    def work() -> list[Test]:
        found: list[Test] = []

        def act(plugin: Collected, items: list[pytest.Item]) -> None:
            for item, following in zip(items, [*items[1:], None], strict=True):
                called: dict[str, set[str]] = {}
                started = time.process_time()
                with _traced(places, called):
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                seconds = time.process_time() - started
                if plugin.failed:
                    print(f"{plugin.failed} fails without any change, and is left out.", flush=True)
                    plugin.failed = ""
                elif called:
                    found.append(Test(item.nodeid, seconds, {file: sorted(called[file]) for file in called}))

        collect(paths, act)
        return sorted(found, key=lambda test: test.seconds)

    return [Test(*fields) for fields in fork(work, limited=False)[1] or ()]


@contextlib.contextmanager
def _traced(places: Mapping[str, str], called: dict[str, set[str]]) -> Iterator[None]:
    """Notes the functions of `places` that are called inside."""

    def enter(frame: FrameType, _event: str, _argument: object) -> None:
        file = places.get(frame.f_code.co_filename)
        if file is not None:
            called.setdefault(file, set()).add(frame.f_code.co_qualname.split(".<locals>")[0])

    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(None)


def tests_of(mutant: Mutant, tests: Sequence[Test]) -> list[str]:
    """The tests that call its function; all that call any of its file where the import runs the change."""
    able = [test for test in tests if mutant.file in test.functions and test.seconds <= SLOW]
    calling = [test for test in able if mutant.function in test.functions[mutant.file]]
    return [test.name for test in (calling if mutant.function else able)]


def run_function(root: Path, mutant: Mutant, plugin: Collected, items: Sequence[pytest.Item]) -> tuple[int, Any]:
    """Runs tests on a mutant of a function, which takes the function's place in a copy of this process."""

    def work() -> str:
        path = str(root / mutant.file)
        codes = [code for code in _codes(compile(mutant.source, path, "exec")) if code.co_qualname == mutant.function]
        changed = max((code for code in codes if code.co_firstlineno <= mutant.line), key=lambda c: c.co_firstlineno)
        for found in gc.get_objects():
            if type(found) is FunctionType and _same_place(found.__code__, changed):
                found.__code__ = changed
        plugin.run(items)
        return plugin.failed

    return fork(work, limited=True)


def run_import(root: Path, mutant: Mutant, names: Sequence[str]) -> tuple[int, Any]:
    """Runs tests on a mutant of what is run by the import; this process must not have imported the package."""

    def work() -> str:
        failed: list[str] = ["the import"]

        def act(plugin: Collected, items: list[pytest.Item]) -> None:
            plugin.run(sorted(items, key=lambda item: names.index(item.nodeid)))
            failed[:] = [plugin.failed]

        sys.meta_path.insert(0, _Finder(root, mutant))
        collect(names, act)
        return failed[0]

    assert "asd" not in sys.modules, "the package was imported unchanged"
    return fork(work, limited=True)


class _Finder:
    """Imports one module from changed source."""

    def __init__(self, root: Path, mutant: Mutant) -> None:
        name = mutant.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self._name, self._path, self._source = name, str(root / mutant.file), mutant.source

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        loader = _Loader(name, self._path)
        loader.source = self._source
        return importlib.util.spec_from_file_location(name, self._path, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    source = ""

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.source, self.path, "exec")


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _same_place(code: CodeType, other: CodeType) -> bool:
    return (
        code.co_firstlineno == other.co_firstlineno
        and code.co_filename == other.co_filename
        and (code.co_qualname == other.co_qualname)
    )
