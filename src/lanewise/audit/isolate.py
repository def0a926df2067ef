"""A process a case, which may crash or hang without harm to the audit.

A server process imports torch and computes nothing; it forks a child for each group of tasks, so that a child starts in
some milliseconds, with fresh OpenMP threads and no accelerator context. What cannot be pickled (closures, functions of
a notebook) is forked from the caller's own process on a CPU, and run in that process on an accelerator.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

Task = tuple[Callable[..., Any], tuple[Any, ...]]
# What torch imports at the first backward pass and the first forward-mode derivative: seconds that no child need spend.
_LAZY = ("torch.fx.experimental.symbolic_shapes", "torch._decomp.decompositions_for_jvp", "torch._dynamo")
_HEADER = struct.Struct("<q")
_STDERR_SHOWN = 300  # characters


@dataclass(frozen=True)
class Ended:
    """How one task ended: with a value, or with the process that ran it ("crashed", "hung")."""

    how: Literal["done", "crashed", "hung"]
    value: Any = None
    reason: str = ""


class Isolator:
    """Runs functions of a shared first argument away from this process.

    Args:
        shared: what every task gets first (the specs); sent once.
        device: "cpu", "cuda", ...
        group: tasks that may share a process while none fails.
        preload: more modules that the server imports.

    Attributes:
        mode: "process", "fork" or "inline".
        note: why it is not "process", for the report.
    """

    def __init__(self, shared: Any, *, device: str = "cpu", group: int = 1, preload: Sequence[str] = ()) -> None:
        self._shared, self._group, self._server = shared, group, None
        self.mode: Literal["process", "fork", "inline"] = "process"
        self.note = ""
        try:
            payload = pickle.dumps(shared)
            if b"__main__" in payload:  # a function of the running script or notebook: no other process has it
                raise pickle.PicklingError("it is defined in __main__")
            self._server = _Server(payload, preload)
            (ready,) = self._server.run(pickle.dumps([(_nothing, ())]), timeout=300.0)
            if ready.how != "done":
                raise pickle.PicklingError(ready.reason)
        except Exception as error:  # whatever a user's objects raise when they are pickled
            self.close()
            self.mode = "fork" if device == "cpu" and hasattr(os, "fork") else "inline"
            if self.mode == "fork":
                _import_all(_LAZY)
            where = (
                "forked from this process" if self.mode == "fork" else "run in this process, which a crash would end"
            )
            why = str(error).strip().splitlines()
            self.note = f"cases were {where}: the operator cannot be sent to another ({why[-1] if why else error!r})"

    def run(self, function: Callable[..., Any], *args: Any, timeout: float) -> Ended:
        """One task in a process of its own."""
        (ended,) = self.run_all([(function, args)], timeout=timeout)
        return ended

    def run_all(self, tasks: Sequence[Task], *, timeout: float) -> Iterator[Ended]:
        """Tasks in order; `timeout` seconds each. A task that ends its process does not end the others.

        Whoever stops listening ends what is under way; nothing else can be run before.
        """
        tasks = list(tasks)
        while tasks:
            group, done = tasks[: self._group], 0
            for ended in self._run_group(group, timeout):
                yield ended
                done += 1
            tasks = tasks[done:]

    def _run_group(self, group: Sequence[Task], timeout: float) -> Iterator[Ended]:
        if self._server is not None:
            yield from self._server.run(pickle.dumps(list(group)), timeout)
        elif self.mode == "fork":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python's own about threads and forks
                yield from _in_child(lambda: self._shared, lambda: group, timeout=timeout, threads=1)
        else:
            for function, args in group:
                yield Ended("done", function(self._shared, *args))

    def close(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.close()
        self._server = None

    def __enter__(self) -> Isolator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server:
    """The process that forks children, seen from the audit; started when there is something to run."""

    def __init__(self, shared: bytes, preload: Sequence[str]) -> None:
        self._shared, self._preload = shared, pickle.dumps(tuple(preload))
        self._process: subprocess.Popen[bytes] | None = None

    def _start(self) -> subprocess.Popen[bytes]:
        begin = f"import sys; sys.path[:] = {sys.path!r}; from lanewise.audit.isolate import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", begin],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"},  # no pools of processes in children
            start_new_session=True,  # Ctrl-C is the audit's business
        )
        _send(self._process.stdin, self._preload)
        _send(self._process.stdin, self._shared)
        return self._process

    def run(self, tasks: bytes, timeout: float) -> Iterator[Ended]:
        """What comes of the tasks, until one ends the child that runs them."""
        process = self._process or self._start()
        _send(process.stdin, pickle.dumps(timeout))
        _send(process.stdin, tasks)
        finished = False
        try:
            while True:
                message = _receive(process.stdout)
                if message is None:
                    raise RuntimeError("the audit's server process ended")
                ended = pickle.loads(message)
                if ended is None:
                    finished = True
                    return
                yield ended
        finally:
            if not finished:
                self.close()

    def close(self) -> None:
        """End the server and its children."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                stream.close()  # type: ignore[union-attr]  # pipes were asked for
        self._process = None


def serve() -> None:
    """The server's loop: read tasks from standard input, fork, hand on what the children say."""
    incoming = os.fdopen(os.dup(0), "rb")
    outgoing = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever operators print must not end up between the messages
    warnings.simplefilter("ignore")
    preload = _receive(incoming)
    shared = _receive(incoming)
    assert preload is not None
    assert shared is not None
    _import_all(("lanewise.audit.examine", *_LAZY, *pickle.loads(preload)))
    while (header := _receive(incoming)) is not None:
        tasks = _receive(incoming)
        assert tasks is not None
        load = (lambda: pickle.loads(shared), lambda tasks=tasks: pickle.loads(tasks))  # both in the child
        for ended in _in_child(*load, timeout=pickle.loads(header)):
            _send(outgoing, pickle.dumps(ended))
        _send(outgoing, pickle.dumps(None))


def _in_child(
    shared: Callable[[], Any], tasks: Callable[[], Sequence[Task]], *, timeout: float, threads: int | None = None
) -> Iterator[Ended]:
    """Fork, run the tasks there one after the other, and give what came of each until one ends the child."""
    read, write = os.pipe()
    with tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            os.close(read)
            _be_child(shared, tasks, write, errors.fileno(), threads)
        os.close(write)
        try:
            with os.fdopen(read, "rb", buffering=0) as stream:
                yield from _listen(stream, child, timeout, errors)
        finally:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(child, 0)


def _listen(stream: IO[bytes], child: int, timeout: float, errors: IO[bytes]) -> Iterator[Ended]:
    while True:
        message = _receive(stream, deadline=time.monotonic() + timeout)
        if message is not None:
            if (ended := pickle.loads(message)) is None:
                return
            yield ended
            continue
        status = _exit_status(child)
        if status is None:
            yield Ended("hung", reason=f"no end after {timeout:.0f} s")
            return
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip().splitlines()
        how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
        last = f": {said[-1][:_STDERR_SHOWN]}" if said else ""
        yield Ended("crashed", reason=f"the process ended with {how}{last}")
        return


def _exit_status(child: int) -> int | None:
    """The exit code, or minus the signal, of a child whose pipe is closed; None while it lives."""
    for _ in range(50):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if select.select([], [], [], 0.02):  # closing the pipe comes a moment before the end
            continue
    return None


def _be_child(
    shared: Callable[[], Any], tasks: Callable[[], Sequence[Task]], write: int, errors: int, threads: int | None
) -> None:
    """Run tasks and leave without any of the parent's clean-up."""
    code = 1
    try:
        faulthandler.disable()  # pytest's, which writes to a terminal that is not the child's
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")  # when memory runs out it is this process that goes
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, signal.SIG_DFL)
        if threads is not None:
            import torch

            torch.set_num_threads(threads)  # the parent's OpenMP threads did not come along
        first = shared()
        with os.fdopen(write, "wb") as stream:
            for function, args in tasks():
                value = function(first, *args)
                _send(stream, pickle.dumps(Ended("done", value)))
                if getattr(value, "fatal", False):
                    break
            _send(stream, pickle.dumps(None))
        code = 0
    except BaseException as error:
        os.write(2, f"\n{type(error).__name__}: {error}".encode())
    finally:
        os._exit(code)


def _import_all(modules: Sequence[str]) -> None:
    for module in modules:
        with (
            suppress(ImportError),
            warnings.catch_warnings(),
        ):  # private modules of torch come and go; children then import what they need
            warnings.simplefilter("ignore")
            importlib.import_module(module)


def _nothing(shared: Any) -> None:
    """What is run to see whether the shared argument arrives."""


def _send(stream: IO[bytes] | None, message: bytes) -> None:
    assert stream is not None
    stream.write(_HEADER.pack(len(message)))
    stream.write(message)
    stream.flush()


def _receive(stream: IO[bytes] | None, deadline: float | None = None) -> bytes | None:
    """One message; None at the end of the stream, or when the deadline passes."""
    assert stream is not None
    header = _read(stream, _HEADER.size, deadline)
    return None if header is None else _read(stream, _HEADER.unpack(header)[0], deadline)


def _read(stream: IO[bytes], size: int, deadline: float | None) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        if deadline is not None and not select.select([stream], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return None
        piece = stream.read(size - len(parts))
        if not piece:
            return None
        parts += piece
    return bytes(parts)
