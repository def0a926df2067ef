"""One forked process: it runs tasks one after the other, and what becomes of it is told, however it ends."""

from __future__ import annotations

import faulthandler
import os
import pickle
import select
import signal
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

Task = tuple[Callable[..., Any], tuple[Any, ...]]
_HEADER = struct.Struct("<q")
_STDERR_SHOWN = 300  # characters


@dataclass(frozen=True)
class Ended:
    """How one task ended: with a value, or with the process that ran it ("crashed", "hung")."""

    how: Literal["done", "crashed", "hung"]
    value: Any = None
    reason: str = ""


def in_child(
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
        message = receive(stream, deadline=time.monotonic() + timeout)
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
                send(stream, pickle.dumps(Ended("done", value)))
                if getattr(value, "fatal", False):
                    break
            send(stream, pickle.dumps(None))
        code = 0
    except BaseException as error:
        os.write(2, f"\n{type(error).__name__}: {error}".encode())
    finally:
        os._exit(code)


def send(stream: IO[bytes] | None, message: bytes) -> None:
    """One message into a pipe."""
    assert stream is not None
    stream.write(_HEADER.pack(len(message)))
    stream.write(message)
    stream.flush()


def receive(stream: IO[bytes] | None, deadline: float | None = None) -> bytes | None:
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
