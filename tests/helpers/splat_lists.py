"""Checks of how the Triton kernels' lists are made, which the interpreter and a GPU pass alike."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch
from guarded import PATTERNS, guarded_memory
from splat_scenes import Scene, make_scene
from torch import Tensor

from lanewise.prove.splat_gate import Kernels, kernel_run, random_upstream
from lanewise.splat import bin_gaussians
from lanewise.splat.binning.reference import TileLists

# Tile size, width and height: even and odd numbers of tiles, a single one, tiles that the picture does not fill.
GRIDS = [(4, 4, 4), (4, 20, 12), (8, 23, 9), (8, 16, 32), (12, 30, 13), (16, 40, 17), (64, 70, 130)]


def check_lists(kernels: Kernels, tile_size: int, width: int, height: int, N: int = 64) -> None:
    """The lists are the reference's; a pair more where fp32 cannot tell."""
    scene = make_scene(7, N=N, width=width, height=height, C=2, near=True)
    _, _, meta = kernel_run(scene, random_upstream(scene))
    tensors = [meta[k].detach() for k in ("means2d", "radii", "depths", "conics", "opacities")]
    size: dict[str, Any] = {"tile_size": tile_size, "width": width, "height": height}
    want = bin_gaussians(*tensors, **size, backend="reference")
    got = bin_gaussians(*(x.to(kernels.device) for x in tensors), **size, backend=kernels.backend)
    listed, wanted = _pairs(got), _pairs(want)
    assert torch.isin(wanted, listed).all(), "a pair that shading may count is missing"
    assert len(wanted) <= len(listed) <= 1.001 * len(wanted) + 1
    assert torch.equal(listed[torch.isin(listed, wanted)], wanted), "the order differs"
    assert got.tiles_per_gauss.sum() == len(listed)


def _pairs(lists: TileLists) -> Tensor:
    """tile * 2^32 + Gaussian, in the order of the lists."""
    ids, offsets = lists.flatten_ids.cpu().long(), lists.isect_offsets.cpu().flatten().long()
    counts = torch.diff(torch.cat([offsets, offsets.new_tensor([len(ids)])]))
    return (torch.arange(len(offsets)).repeat_interleave(counts) << 32) + ids


@contextmanager
def chunks(small: int, chunk: int, *, longest: int = 2**13, block: int = 2048) -> Iterator[list[str]]:
    """Coarse lists of up to `longest` are sorted one by one in such chunks; the names of the kernels launched."""
    from lanewise.splat.binning import launch

    launched, original = [], launch.launch

    def noted(kernel: Any, *args: Any, **kwargs: Any) -> None:
        launched.append(kernel.fn.__name__)
        original(kernel, *args, **kwargs)

    values = {"SMALL": small, "CHUNK": chunk, "LONGEST": longest, "BEGIN_BLOCK": block, "launch": noted}
    with mock.patch.multiple(launch, **values):
        yield launched


def check_one_by_one(kernels: Kernels, N: int, small: int, chunk: int, block: int = 2048, width: int = 43) -> int:
    """Coarse lists that are sorted one by one are those that are sorted together, bit for bit, up to the longest that
    may be; how long it is."""
    size: dict[str, Any] = {"tile_size": 8, "width": width, "height": 17}
    operands = [x.to(kernels.device) for x in _operands(N, 2, width, 17)]

    def lists(longest: int) -> tuple[TileLists, list[str]]:
        with chunks(small, chunk, longest=longest, block=block) as launched:
            return bin_gaussians(*operands, **size, backend=kernels.backend), launched

    want, launched = lists(0)
    assert not {"begin_lists", "sort_lists"} & set(launched)
    got, launched = lists(2**13)
    assert N == 0 or "divide_count" not in launched
    longest = 0 if got.lengths is None else int(got.lengths[2].sum())
    assert ("merge_lists" in launched) == (longest > chunk)
    found = [got]
    for limit in (longest, longest - 1) if longest > 1 else ():
        limited, launched = lists(limit)
        assert ("sort_lists" in launched) == (limit == longest)
        found.append(limited)
    for one in found:
        for name in ("tiles_per_gauss", "flatten_ids", "isect_offsets", "bounds"):
            a, b = getattr(one, name), getattr(want, name)
            assert a.dtype == b.dtype
            assert torch.equal(a, b), f"{name} of {N} Gaussians"
    return longest


def _operands(N: int, images: int, width: int, height: int) -> list[Tensor]:
    """Means, radii, depths, conics and opacities of projected Gaussians, whose depths are often equal, and at times
    negative, zero, infinite or not a number."""
    scene = make_scene(23, N=max(N, 1), C=images, width=width, height=height, near=True)
    _, _, meta = kernel_run(scene, random_upstream(scene))
    tensors = [meta[k].detach()[:, :N].contiguous() for k in ("means2d", "radii", "depths", "conics", "opacities")]
    g = torch.Generator().manual_seed(N)
    tensors[2] = torch.randint(-5, 20, (images, N), generator=g) * 0.01
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-42, -1e-42, 3e38])
    where = torch.rand(images, N, generator=g) < 0.3
    tensors[2][where] = special[torch.randint(len(special), (int(where.sum()),), generator=g)]
    return tensors


def check_one_by_one_is_checked(kernels: Kernels) -> None:
    """Chunks that are not merged, and depths whose lower bits are lost, are noticed."""
    from lanewise.splat.binning import launch

    original = launch.launch
    for careless_with in ("merge_lists", "emit"):

        def careless(kernel: Any, grid: Any, *args: Any, name: str = careless_with, **kwargs: Any) -> None:
            if kernel.fn.__name__ == name == "emit" and args[3] is not None:
                args = (*args[:3], args[3].bfloat16().float(), *args[4:])
            if kernel.fn.__name__ != "merge_lists" or name != "merge_lists":
                original(kernel, grid, *args, **kwargs)

        with mock.patch.object(launch, "launch", careless), pytest.raises(AssertionError, match="of 65 Gaussians"):
            check_one_by_one(kernels, 65, 8, 16, width=20)


def check_capacity(kernels: Kernels, scene: Scene) -> None:
    """Lists with room for all are the exact ones, bit for bit; those without say so, and touch nothing else."""
    exact = _run(scene, kernels)
    n = exact["flatten_ids"].numel()
    roomy = _run(scene, kernels, (3 * n, 4 * n))
    n_coarse = int(roomy["n_coarse"])
    assert 0 < n_coarse < n
    for pattern, capacity in zip(PATTERNS, ((n, n_coarse), (n + 1, n_coarse + 100)), strict=True):
        with guarded_memory(pattern):
            fits = _run(scene, kernels, capacity)
        for run in (roomy, fits):
            assert not run["overflow"]
            assert (run["n_isects"], run["n_coarse"]) == (n, n_coarse)
            assert torch.equal(run["flatten_ids"][:n], exact["flatten_ids"])
            assert same(run, exact, ("isect_offsets", "colors out", "alphas out", *scene.tensors))
    for capacity in ((n - 1, n_coarse), (n, n_coarse - 1), (1, 1)):
        runs = []
        for pattern in PATTERNS:
            with guarded_memory(pattern):
                runs.append(_run(scene, kernels, capacity))
            assert runs[-1]["overflow"]
            assert (runs[-1]["n_isects"], runs[-1]["n_coarse"]) == (n, n_coarse)
            assert runs[-1]["isect_offsets"].max() <= capacity[0]
        assert same(*runs, ("isect_offsets", "colors out", "alphas out", *scene.tensors)), "unwritten memory was used"


def check_canary(kernels: Kernels, scene: Scene) -> None:
    """Guarded memory notices kernels that take the lists for longer than they are."""
    from lanewise.splat.binning import kernels as binning
    from lanewise.splat.binning import launch

    original = launch.launch
    for kernel, capacity in ((binning.emit, (3, 3)), (binning.divide, (3, 100))):

        def careless(launched: Any, grid: Any, *args: Any, kernel: Any = kernel, **kwargs: Any) -> None:
            more = 50 if launched is kernel else 0  # `capacity` is their last argument
            original(launched, grid, *args[:-1], args[-1] + more, **kwargs)

        with (
            mock.patch.object(launch, "launch", careless),
            pytest.raises(AssertionError, match="behind an array"),
            guarded_memory(PATTERNS[0]),
        ):
            _run(scene, kernels, capacity)


@contextmanager
def wide_lists() -> Iterator[None]:
    """All lists have 64-bit bounds, however short they are."""
    from lanewise.splat.binning import launch

    with mock.patch.object(launch, "tile_lists", functools.partial(launch.tile_lists, wide=1)):
        yield


def check_wide(kernels: Kernels, scene: Scene) -> None:
    """64-bit bounds change no bit of what is computed."""
    short = _run(scene, kernels)
    with wide_lists():
        wide = _run(scene, kernels)
    assert short["isect_offsets"].dtype == torch.int32
    assert wide["isect_offsets"].dtype == torch.int64
    assert same(short, wide, ("flatten_ids", "isect_offsets", "colors out", "alphas out", *scene.tensors))


def check_parts(kernels: Kernels, scene: Scene) -> None:
    """Lists that are sorted in parts are the same, bit for bit; also where the parts' lengths differ."""
    from lanewise.splat.binning import launch

    whole = _run(scene, kernels)
    for longest in (10**9, 97, 64):
        with (
            mock.patch.object(launch, "tile_lists", functools.partial(launch.tile_lists, part=1)),
            mock.patch.object(launch, "LONGEST_PART", longest),
            mock.patch.object(launch, "LONGEST", 0),
        ):
            parts, length = launch._parts(int(whole["tiles_per_gauss"].sum()), 1)
            assert 2 <= parts <= launch.MOST_PARTS
            assert length > 1
            for capacity in (None, (whole["flatten_ids"].numel(),) * 2):
                cut = _run(scene, kernels, capacity)
                assert same(whole, cut, ("flatten_ids", "isect_offsets", "colors out", "alphas out", *scene.tensors))


def _run(scene: Scene, kernels: Kernels, capacity: tuple[int, int] | None = None) -> dict[str, Tensor]:
    """Outputs, gradients and meta by name."""
    lists = {} if capacity is None else {"isect_capacity": capacity}
    (colors, alphas), grads, meta = kernel_run(
        replace(scene, options={**scene.options, **lists}), random_upstream(scene), kernels=kernels
    )
    return {**meta, "colors out": colors, "alphas out": alphas, **grads}


def same(a: dict[str, Tensor], b: dict[str, Tensor], names: tuple[str, ...]) -> bool:
    """Whether the tensors of these names hold the same values, NaN included."""
    return all(torch.equal(a[k].nan_to_num(7.0), b[k].nan_to_num(7.0)) for k in names)
