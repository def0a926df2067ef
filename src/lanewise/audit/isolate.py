"""A process a case, which may crash or hang without harm to the audit.

A server process imports torch and computes nothing; it forks a child for each group of tasks, so that a child starts in
some milliseconds, with fresh OpenMP threads and no accelerator context. What cannot be pickled (closures, functions of
a notebook) is forked from the caller's own process on a CPU, and run in that process on an accelerator.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal

from lanewise.audit.child import Ended, Task, in_child, receive, send
from lanewise.errors import DeviceError

# What torch imports at the first backward pass and the first forward-mode derivative: seconds that no child need spend.
_LAZY = ("torch.fx.experimental.symbolic_shapes", "torch._decomp.decompositions_for_jvp", "torch._dynamo")
# `torch.cuda.is_available()` then asks NVML, and does not initialize a driver that children could not use after a fork.
_ENVIRONMENT = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
_READY = 300.0  # seconds for the first thing that is run


def allocate(shared: Any, device: str) -> None:
    """What is run to see whether a process can use the device."""
    import torch

    torch.ones(1, device=device).add(1).item()


class Isolator:
    """Runs functions of a shared first argument away from this process.

    Args:
        shared: what every task gets first (the specs); sent once.
        device: "cpu", "cuda", ...
        group: tasks that may share a process while none fails.
        preload: more modules that the server imports.
        check: raises where the device cannot be used; called with the shared argument and the device.

    Attributes:
        mode: "process", "fork" or "inline".
        note: what is not as usual, for the report: why the mode is not "process", or why nothing was preloaded.

    Raises:
        DeviceError: no process can use the device, this one neither.
    """

    def __init__(
        self,
        shared: Any,
        *,
        device: str = "cpu",
        group: int = 1,
        preload: Sequence[str] = (),
        check: Callable[[Any, str], None] = allocate,
    ) -> None:
        self._shared, self._group, self._server = shared, group, None
        self._check: Task = (check, (device,))
        self.mode: Literal["process", "fork", "inline"] = "process"
        self.note = ""
        try:
            payload = pickle.dumps(shared)
            if b"__main__" in payload:  # a function of the running script or notebook: no other process has it
                raise pickle.PicklingError("it is defined in __main__")
            self._serve(payload, device, preload)
        except Exception as error:  # whatever a user's objects raise when they are pickled
            self.close()
            self._stay(device, error)

    def _serve(self, payload: bytes, device: str, preload: Sequence[str]) -> None:
        """Start a server whose children can use the device.

        An import may have spoiled that for all of them: whoever asks CUDA for its devices before a fork leaves the
        child with a driver that is not initialized. So with each failure less is imported before the fork.
        """
        failure = ""
        for modules in dict.fromkeys(((*_LAZY, *preload), _LAZY, ())):
            self._server = _Server(payload, modules)
            arrived, *checked = self._server.run(pickle.dumps([(_nothing, ()), self._check]), timeout=_READY)
            if arrived.how != "done":
                raise pickle.PicklingError(arrived.reason)
            if checked[0].how == "done":
                if failure:
                    self.note = f"every process imports what it needs by itself, which takes longer: {failure}"
                return
            imported = ", ".join(modules) or "torch"
            failure = f"forked after the import of {imported} none can use the device ({checked[0].reason})"
            self.close()
        raise DeviceError(device, why=failure)

    def _stay(self, device: str, error: Exception) -> None:
        """Go on without a server, with the reason in the note."""
        self.mode = "fork" if device == "cpu" and hasattr(os, "fork") else "inline"
        if self.mode == "fork":
            _import_all(_LAZY)
        elif (why := self.unusable()) is not None:
            raise DeviceError(device, why=why, fix="see what `lanewise doctor` says, or audit on another device")
        where = "forked from this process" if self.mode == "fork" else "run in this process, which a crash would end"
        lost = isinstance(error, DeviceError)
        reason = "another cannot use the device" if lost else "the operator cannot be sent to another"
        why = str(error).strip().splitlines()
        self.note = f"cases were {where}: {reason} ({why[-1] if why else error!r})"

    def unusable(self) -> str | None:
        """Why a fresh process cannot use the device; None when it can."""
        function, args = self._check
        try:
            ended = self.run(function, *args, timeout=_READY)
        except Exception as error:  # of this process, where there is no other, or of a server that has ended
            return f"{type(error).__name__}: {error}"
        return None if ended.how == "done" else ended.reason

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
                yield from in_child(lambda: self._shared, lambda: group, timeout=timeout, threads=1)
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
            env={
                **_ENVIRONMENT,
                **os.environ,
                "TORCHINDUCTOR_COMPILE_THREADS": "1",
            },  # no pools of processes in children
            start_new_session=True,  # Ctrl-C is the audit's business
        )
        send(self._process.stdin, self._preload)
        send(self._process.stdin, self._shared)
        return self._process

    def run(self, tasks: bytes, timeout: float) -> Iterator[Ended]:
        """What comes of the tasks, until one ends the child that runs them."""
        process = self._process or self._start()
        send(process.stdin, pickle.dumps(timeout))
        send(process.stdin, tasks)
        finished = False
        try:
            while True:
                message = receive(process.stdout)
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
    preload = receive(incoming)
    shared = receive(incoming)
    assert preload is not None
    assert shared is not None
    _import_all(("lanewise.audit.examine", *pickle.loads(preload)))
    while (header := receive(incoming)) is not None:
        tasks = receive(incoming)
        assert tasks is not None
        load = (lambda: pickle.loads(shared), lambda tasks=tasks: pickle.loads(tasks))  # both in the child
        for ended in in_child(*load, timeout=pickle.loads(header)):
            send(outgoing, pickle.dumps(ended))
        send(outgoing, pickle.dumps(None))


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
