"""What all Triton launches share."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from lanewise.errors import UnsupportedError

T = TypeVar("T")

_compiled: dict[tuple[Any, ...], Variant] = {}


def launch(
    kernel: Any, grid: tuple[int, ...], *args: Any, options: dict[str, Any] | None = None, **constexprs: Any
) -> None:
    """kernel[grid](*args, **constexprs, **options).

    Triton works out at every launch which variant the arguments need, in some 30 us of Python; a step has a dozen
    launches. Here the variant is looked up by what makes the difference: the constants and options, which arguments
    are None, the tensors' dtypes and 16-byte alignment, and how wide whole numbers are. That asks of kernels that their
    constants come last, that they specialize on no whole number (`do_not_specialize`), and that their first argument is
    a tensor, on the current GPU (`on_its_device`).
    """
    options = options or {}
    if not _on_gpu(args):  # Triton's interpreter compiles nothing
        kernel[grid](*args, **constexprs, **options)
        return
    device = args[0].device.index
    kinds, values = _kinds(args)
    key = (id(kernel), device, *constexprs.values(), *options.values(), *kinds)
    variant, grid = _compiled.get(key), (*grid, 1, 1)[:3]
    if variant is not None:
        variant.start(grid, _streams()(device), (*values, *constexprs.values()))
        _note(variant, grid, (*args, *constexprs.values()))
        return
    names = kernel.arg_names
    assert names[len(args) :] == list(constexprs), (names, list(constexprs))
    # A variant made for one number (1, or a multiple of 16) must never run with another.
    special = [n for n, x in zip(names, args, strict=False) if isinstance(x, int) and n not in kernel.do_not_specialize]
    assert not special, f"{special} have to be in do_not_specialize"
    done = kernel[grid](*args, **constexprs, **options)
    compiled = done.result() if hasattr(done, "result") else done
    if compiled is not None:  # else somebody only looks at launches
        variant = _compiled[key] = Variant(compiled)
        _note(variant, grid, (*args, *constexprs.values()))


class Variant:
    """A kernel as Triton compiled it, to be launched again.

    Triton's own way, `compiled[grid](*args)`, asks the driver about every pointer and calls two chains of hooks, which
    takes as long as the launch. Here pointers are numbers, about which nobody is asked, and hooks are called where a
    profiler has set some.

    Args:
        compiled: Triton's compiled kernel, which ran.
    """

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._parts = (compiled.run, compiled.function, compiled.packed_metadata)

    def start(self, grid: tuple[int, ...], stream: int, args: Sequence[Any]) -> None:
        """Launch it.

        Args:
            grid: three numbers.
            stream: where.
            args: all arguments, constants too; addresses in the place of tensors.
        """
        if _hooked():
            self._compiled[grid](*args, stream=stream)
            return
        run, function, metadata = self._parts
        run(*grid, stream, function, metadata, None, None, None, *args)


def _hooked() -> bool:
    """Whether somebody wants to hear of launches."""
    runtime = _knobs().runtime
    enter, leave = runtime.launch_enter_hook, runtime.launch_exit_hook  # chains since Triton 3.5
    return bool(getattr(enter, "calls", enter) or getattr(leave, "calls", leave))


@functools.cache
def _knobs() -> Any:
    from triton import knobs

    return knobs


class Launch(NamedTuple):
    """A launch that was made: the variant, its grid and all arguments."""

    variant: Variant
    grid: tuple[int, ...]
    args: tuple[Any, ...]


_recorder = threading.local()


@contextlib.contextmanager
def recording() -> Iterator[list[Any]]:
    """A list of the launches that this thread makes in the block, to which others may add what they do."""
    outer, _recorder.launches = getattr(_recorder, "launches", None), []
    try:
        yield _recorder.launches
    finally:
        _recorder.launches = outer


def _note(*launch: Any) -> None:
    launches = getattr(_recorder, "launches", None)
    if launches is not None:
        launches.append(Launch(*launch))


def current_stream(device: int) -> int:
    """The current stream of a GPU."""
    return _streams()(device)


def _on_gpu(args: tuple[Any, ...]) -> bool:
    return args[0].is_cuda


@functools.cache
def _streams() -> Callable[[int], int]:
    """What tells a GPU's current stream: Triton asks at every launch which GPU is the current one before."""
    from triton.runtime import driver

    active: Any = driver.active
    return active.get_current_stream


# For AMD Triton makes a variant of its own for tensors in at most so many bytes, which loads and stores through a
# buffer: what it is given of a larger one, it reads as 0 and does not write.
_BUFFERS, _REACH = torch.version.hip is not None, 2**31 - 1


def _kinds(args: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """What makes a difference of arguments: a tensor's dtype, 16 behind it where its address is no multiple of that,
    and on AMD whether it is large; whether a whole number has 32 bits; the type of another. And what a launch takes:
    addresses for tensors. One loop: this runs at every launch."""
    kinds, values = [], []
    for x in args:
        if isinstance(x, Tensor):
            address = x.data_ptr()
            kinds.append(x.dtype)
            if address % 16:
                kinds.append(16)
            if _BUFFERS and x.untyped_storage().nbytes() > _REACH:
                kinds.append("large")
            values.append(address)
        else:
            kinds.append(-(2**31) <= x < 2**31 if isinstance(x, int) else type(x))
            values.append(x)
    return kinds, values


def on_its_device(function: Callable[..., T]) -> Callable[..., T]:
    """Run a launch function with the GPU of its first tensor as the current one, which is where Triton launches."""

    @functools.wraps(function)
    def run(first: Tensor, *args: Any, **kwargs: Any) -> T:
        if not first.is_cuda or first.device.index == torch.cuda.current_device():
            return function(first, *args, **kwargs)
        with torch.cuda.device_of(first):
            return function(first, *args, **kwargs)

    return run


def contiguous(*tensors: Tensor | None) -> Any:
    """The tensors as kernels address them: contiguous, None staying None."""
    return tuple(x if x is None or x.is_contiguous() else x.contiguous() for x in tensors)


ROWS = 2**31  # how many rows a tensor of a launch may not have


def check_window(*tensors: Tensor) -> None:
    """Raise unless the rows of every tensor [..., columns] can be numbered with 31 bits.

    Kernels add 64-bit bases; only row numbers (Gaussians of all images, records of pairs) are 32 bits wide.
    """
    for tensor in tensors:
        if tensor.numel() >= ROWS:
            check_rows(tensor.numel() // max(tensor.shape[-1] if tensor.dim() else 1, 1))


def check_rows(rows: int, fix: str = "render fewer cameras or Gaussians at a time") -> None:
    """Raise unless so many rows can be numbered with 31 bits."""
    if rows >= ROWS:
        raise UnsupportedError(f"{rows} rows in one launch", why="rows are numbered with 32 bits", fix=fix)
