"""What makes another variant of a compiled kernel, with a kernel that only counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lanewise.errors import UnsupportedError
from lanewise.splat import _launch
from lanewise.splat._launch import check_rows, check_window, launch


class Compiled:
    """What Triton compiled: remembers what it ran with, and what ran as Triton itself runs it."""

    function, packed_metadata = "function", "metadata"

    def __init__(self) -> None:
        self.runs: list[tuple] = []
        self.told: list[tuple] = []

    def run(self, x: int, y: int, z: int, stream: int, *args: Any) -> None:
        assert (stream, *args[:5]) == (0, "function", "metadata", None, None, None)
        self.runs.append(((x, y, z), args[5:]))

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *args, stream: self.told.append((grid, args))


class Kernel:
    """Counts how often Triton's own dispatch is asked."""

    def __init__(self) -> None:
        self.arg_names = ["x", "y", "n", "A", "B"]
        self.do_not_specialize = ["n"]
        self.variants: list[Compiled] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def compile_and_run(*args: Any, **kwargs: Any) -> Compiled:
            self.variants.append(Compiled())
            return self.variants[-1]

        return compile_and_run


@pytest.fixture
def kernel(monkeypatch) -> Kernel:
    monkeypatch.setattr(_launch, "_compiled", {})
    monkeypatch.setattr(_launch, "_on_gpu", lambda args: True)
    monkeypatch.setattr(_launch, "_streams", lambda: lambda device: 0)
    return Kernel()


def buffer(offset: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Four numbers, `offset` bytes behind an address that 16 divides."""
    room = torch.zeros(128, dtype=torch.uint8)
    offset += -room.data_ptr() % 16
    return room[offset : offset + 4 * dtype.itemsize].view(dtype)


SAME = ((buffer(), buffer(), 5), {"A": 1, "B": True})


def run(kernel: Kernel, args: tuple, constexprs: dict, **options: Any) -> None:
    launch(kernel, (3,), *args, options=options, **constexprs)


def test_what_is_compiled_runs_without_the_dispatch(kernel):
    run(kernel, *SAME)
    other = (buffer(16), buffer(32), -7)  # other memory and other numbers, which the kernel does not specialize on
    launch(kernel, (3, 4), *other, options={}, **SAME[1])
    assert len(kernel.variants) == 1
    ((grid, args),) = kernel.variants[0].runs
    assert grid == (3, 4, 1)
    assert args[:2] == (other[0].data_ptr(), other[1].data_ptr())
    assert args[2:] == (-7, 1, True)


@pytest.mark.parametrize("name", ["launch_enter_hook", "launch_exit_hook"])
def test_a_profiler_hears_of_launches(kernel, name, monkeypatch):
    knobs = pytest.importorskip("triton.knobs")
    run(kernel, *SAME)
    for hook in (lambda metadata: None, SimpleNamespace(calls=[print])):  # before Triton 3.5, and since
        monkeypatch.setattr(knobs.runtime, name, hook)
        run(kernel, *SAME)
    monkeypatch.setattr(knobs.runtime, name, SimpleNamespace(calls=[]))
    run(kernel, *SAME)
    assert (len(kernel.variants[0].told), len(kernel.variants[0].runs)) == (2, 1)


@pytest.mark.parametrize(
    ("args", "constexprs"),
    [
        ((buffer(dtype=torch.int64), buffer(), 5), {"A": 1, "B": True}),
        ((buffer(4), buffer(), 5), {"A": 1, "B": True}),
        ((buffer(), None, 5), {"A": 1, "B": True}),
        ((buffer(), buffer(), 2**31), {"A": 1, "B": True}),
        ((buffer(), buffer(), -(2**31) - 1), {"A": 1, "B": True}),
        ((buffer(), buffer(), 5.0), {"A": 1, "B": True}),
        ((buffer(), buffer(), 5), {"A": 2, "B": True}),
        ((buffer(), buffer(), 5), {"A": 1, "B": False}),
    ],
    ids=["dtype", "misaligned", "None", "huge", "huge and negative", "float", "constant", "flag"],
)
def test_what_differs_is_another_variant(kernel, args, constexprs):
    run(kernel, *SAME)
    run(kernel, args, constexprs)
    run(kernel, args, constexprs)
    run(kernel, *SAME)
    assert [len(variant.runs) for variant in kernel.variants] == [1, 1]


@pytest.mark.parametrize("amd", [False, True])
def test_a_large_tensor_is_another_variant_on_amd(kernel, amd, monkeypatch):
    """AMD's variant for small tensors reads zeros past 2 GiB. `buffer` is in 128 bytes, whatever its shape."""
    monkeypatch.setattr(_launch, "_BUFFERS", amd)
    for reach in (2**31 - 1, 127, 128, 127):
        monkeypatch.setattr(_launch, "_REACH", reach)
        run(kernel, *SAME)
    assert [len(variant.runs) for variant in kernel.variants] == ([1, 1] if amd else [3])


def test_other_options_and_kernels_are_other_variants(kernel):
    run(kernel, *SAME)
    run(kernel, *SAME, num_warps=2)
    assert len(kernel.variants) == 2
    other = Kernel()
    run(other, *SAME)
    assert len(other.variants) == 1
    assert all(variant.runs == [] for variant in kernel.variants)


@pytest.mark.parametrize("constexprs", [{"B": True, "A": 1}, {"A": 1}])
def test_constants_must_be_the_kernels_last_arguments_in_its_order(kernel, constexprs):
    with pytest.raises(AssertionError):
        run(kernel, SAME[0], constexprs)
    assert kernel.variants == []


def test_rows_that_31_bits_cannot_number_are_refused():
    check_window(torch.empty(2**31 - 1, 9, device="meta"), torch.empty(2, 0), torch.empty(()))
    with pytest.raises(UnsupportedError, match="2147483648 rows in one launch"):
        check_window(torch.empty(2**31, 9, device="meta"))
    check_rows(2**31 - 1)
    with pytest.raises(UnsupportedError, match=r"2147483648 rows in one launch.*fewer of them"):
        check_rows(2**31, fix="fewer of them")


def test_a_kernel_that_specializes_on_a_number_is_refused(kernel):
    kernel.do_not_specialize = []
    with pytest.raises(AssertionError, match=r"\['n'\] have to be in do_not_specialize"):
        run(kernel, *SAME)
    assert not kernel.variants


def test_numbers_are_kept_but_not_from_a_capture(monkeypatch):
    pytest.importorskip("triton")
    from lanewise.splat.binning import launch as lists

    class Device:
        type = "cuda"

    class Fresh:
        def repeat(self, *_):
            return "fresh"

    made = []
    monkeypatch.setattr(lists, "_kept_numbers", lambda *_: "kept")
    monkeypatch.setattr(torch, "arange", lambda *_, **__: made.append(1) or Fresh())
    for capturing, want in ((False, "kept"), (True, "fresh")):
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda capturing=capturing: capturing)
        assert lists._numbers(2, 5, torch.int16, Device()) == want  # type: ignore[arg-type]
    assert made == [1]
