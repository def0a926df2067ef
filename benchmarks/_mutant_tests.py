"""Tests of a mutant: in a process forked after the slow imports, those alone that execute what changed, quickest first.

A process that runs all tests of the unchanged files says which lines each of them executes and how long it takes.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import pytest
import scipy.stats  # noqa: F401  (imported here, by the tests otherwise: once instead of once a mutant)
import torch
import torch._dynamo  # forward mode needs it
from _mutations import Mutant

ROOT = Path(__file__).resolve().parents[1]
SLOW = 0.5  # seconds from which on a test comes after all others

Line = tuple[str, int]


class Test(NamedTuple):
    """A test: its name, and in the unchanged files its seconds and the lines that it executes."""

    name: str
    seconds: float
    lines: frozenset[Line]


class TestError(Exception):
    """The tests do not pass on the unchanged files."""


def survey(files: Sequence[Path], tests: Sequence[str]) -> list[Test]:
    """All tests of the unchanged files.

    Raises:
        TestError: one fails.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        recorder = _Recorder({str(file) for file in files})
        code = _run(recorder, tests)
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(recorder.found, pipe)
        os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        content = pipe.read()
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
        raise TestError("the tests fail, or there is none, without any change")
    return pickle.loads(content)


def plan(mutant: Mutant, tests: Sequence[Test]) -> list[str]:
    """The tests that execute what changed, in the order to run them in: the file's own first, slow ones last.

    All of them where none does: a constant of a module, or a line that is only executed as it is imported.
    """
    changed = {(str(mutant.file), line) for line in mutant.lines}
    telling = [test for test in tests if test.lines & changed] or list(tests)
    own = f"/test_{mutant.file.stem}"
    return [t.name for t in sorted(telling, key=lambda t: (t.seconds > SLOW, own not in t.name, t.seconds))]


def outcomes(
    mutants: Sequence[Mutant], tests: Sequence[Test], *, jobs: int, timeout: float
) -> Iterator[tuple[Mutant, str]]:
    """Each mutant with what became of it, as they end: "noticed", "timeout" (noticed too), or "survived"."""
    waiting, running = list(mutants)[::-1], dict[int, tuple[Mutant, float]]()
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            running[_start(mutant, plan(mutant, tests))] = mutant, time.monotonic() + timeout
        time.sleep(0.02)
        for child, (mutant, end) in list(running.items()):
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                yield mutant, "noticed" if os.waitstatus_to_exitcode(status) else "survived"
            elif time.monotonic() > end:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                yield mutant, "timeout"
            else:
                continue
            del running[child]


def _start(mutant: Mutant, names: list[str]) -> int:
    """The process in which the mutant is imported in place of its file and tested."""
    child = os.fork()
    if child == 0:
        name = ".".join(mutant.file.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        sys.meta_path.insert(0, _Finder(name, mutant))
        os._exit(_run(_Only(names), dict.fromkeys(test.split("::")[0] for test in names)))
    return child


def _run(plugin: object, tests: Iterator[str] | Sequence[str] | dict[str, None]) -> int:
    """Run tests until one fails, the same ones with the same numbers every time; pytest's exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    os.chdir(ROOT)
    torch.set_num_threads(1)
    hypothesis.settings.register_profile("mutants", derandomize=True)
    hypothesis.settings.load_profile("mutants")
    # Without other plugins: pytest would load the modules of Lanewise, which has one, by itself.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = ("-x", "-q", "--assert=plain", "-p", "no:cacheprovider", "-p", "pytest_timeout")
    return int(pytest.main([*options, "-m", "not slow and not gpu", *tests], plugins=[plugin]))


class _Recorder:
    """Notes of each test how long it takes and which lines of some files it executes."""

    def __init__(self, files: set[str]) -> None:
        self.found: list[Test] = []
        self._files = files

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        lines: set[Line] = set()
        start = time.perf_counter()
        sys.settrace(self._tracer(lines))
        try:
            return (yield)
        finally:
            sys.settrace(None)
            self.found.append(Test(item.nodeid, time.perf_counter() - start, frozenset(lines)))

    def _tracer(self, lines: set[Line]) -> Callable[..., Any]:
        def trace(frame: Any, event: str, argument: Any) -> Any:
            if frame.f_code.co_filename not in self._files:
                return None
            lines.add((frame.f_code.co_filename, frame.f_lineno))
            return trace

        return trace


class _Only:
    """Runs some tests alone, in an order."""

    def __init__(self, names: list[str]) -> None:
        self._place = {name: place for place, name in enumerate(names)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        wanted = (item for item in items if item.nodeid in self._place)
        items[:] = sorted(wanted, key=lambda item: self._place[item.nodeid])


class _Finder(importlib.machinery.SourceFileLoader):
    """Finds one module, and gives the mutant's source for it."""

    def __init__(self, name: str, mutant: Mutant) -> None:
        super().__init__(name, str(mutant.file))
        self._wanted, self._mutant = name, mutant

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec of that module; None for every other."""
        if name != self._wanted:
            return None
        inside = [str(self._mutant.file.parent)] if self._mutant.file.stem == "__init__" else None
        return importlib.util.spec_from_file_location(
            name, self._mutant.file, loader=self, submodule_search_locations=inside
        )

    def get_code(self, fullname: str) -> Any:
        """The mutant, compiled."""
        return compile(self._mutant.source, str(self._mutant.file), "exec")
