"""Run by tests/splat/test_interpreted.py in a process of its own: what the rasterizer's kernels are given, in Triton's
interpreter; and faults in how its backward pass exchanges between the Gaussians of a group."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # before anything imports Triton

import sys
import warnings
from unittest import mock

import pytest
import torch
import triton
import triton.language as tl
from splat_lists import chunks, same
from splat_scenes import Scene, make_scene

import lanewise  # noqa: F401 - before torch
from lanewise.audit.gate import GateError, require
from lanewise.prove.splat_gate import (
    Kernels,
    gate_rasterization,
    gate_rasterize,
    kernel_run,
    random_upstream,
    true_rasterization,
)
from lanewise.splat import rasterization
from lanewise.splat.rasterize import kernels_backward, launch

KERNELS, ORDERED = Kernels("triton", "cpu"), Kernels("triton", "cpu", deterministic=True)
_products, _sums = kernels_backward._products, kernels_backward._sums


@triton.jit
def products_of_two(x, i, neighbour, pair):
    """The other pair's product is taken for the neighbour's."""
    return _products(x, i, neighbour, neighbour)


@triton.jit
def sums_of_two(x, i, neighbour, pair):
    """The other pair's sum is taken for the neighbour's."""
    return _sums(x, i, neighbour, neighbour)


@triton.jit
def sums_with_each(x, i, neighbour, pair):
    """What lies behind a Gaussian includes itself."""
    before, total = _sums(x, i, neighbour, pair)
    return before + x, total


@triton.jit
def products_before(x, i, neighbour, pair):
    """The transmittance before a Gaussian leaves itself out, where it is the last of its pair."""
    upto, total = _products(x, i, neighbour, pair)
    return tl.where((i & 1) == 1, upto / x, upto), total


MUTANTS = {"_products": [products_of_two, products_before], "_sums": [sums_of_two, sums_with_each]}


def small(**options: object) -> Scene:
    return make_scene(8, **{"N": 7, "width": 8, "height": 7, **options})


def check_operands() -> None:
    """Colours and opacities that three cameras share, with any number of channels, over backgrounds; without channels
    all gradients come from the alphas."""
    for channels in (0, 1, 4, 5, 17):
        scene = small(C=3, channels=channels, background=True)
        require(*gate_rasterization(scene, true_rasterization(scene, KERNELS), kernels=KERNELS))


def check_one_output() -> None:
    """A gradient that is not there is one of zeros."""
    scene = small(background=True)
    for one in (0, 1):
        upstream = [torch.zeros_like(v) if i != one else v for i, v in enumerate(random_upstream(scene))]
        _, want, _ = kernel_run(scene, (upstream[0], upstream[1]), kernels=KERNELS)
        leaves = scene.leaves()
        outputs = rasterization(**leaves, width=8, height=7, **scene.options, backend="triton", deterministic=False)
        got = torch.autograd.grad(outputs[one], list(leaves.values()), upstream[one], materialize_grads=True)
        assert same(dict(zip(leaves, got, strict=True)), want, tuple(leaves))


def check_tiles() -> None:
    """Tiles that squares of pixels do not fill."""
    for tile_size, kernels in ((12, KERNELS), (20, ORDERED)):
        scene = small(width=tile_size + 2, height=5, tile_size=tile_size)
        require(*gate_rasterize(scene, kernels=kernels))


def check_default_order() -> None:
    """Where atomic additions are slow, the order is that of deterministic=True."""
    scene = small(N=12)
    upstream = random_upstream(scene)
    _, want, _ = kernel_run(scene, upstream, kernels=ORDERED)
    with (
        mock.patch.object(launch, "_adds_atomically", return_value=False),
        mock.patch.object(launch, "_sum_by_gaussian", side_effect=launch._sum_by_gaussian) as summed,
    ):
        _, got, _ = kernel_run(scene, upstream, kernels=Kernels("triton", "cpu", deterministic=None))
        assert summed.call_count == 1
        kernel_run(scene, upstream, kernels=KERNELS)
        assert summed.call_count == 1
    assert same(want, got, tuple(want))


def check_mutants() -> None:
    """Faults of the exchange are caught."""
    scene = small(N=12)
    truth = true_rasterization(scene, KERNELS)
    require(*gate_rasterization(scene, truth, kernels=KERNELS))
    for name, mutants in MUTANTS.items():
        for mutant in mutants:
            with (
                mock.patch.object(kernels_backward, name, mutant),
                pytest.raises(GateError, match="means: relative error"),
            ):
                require(*gate_rasterization(scene, truth, kernels=KERNELS))


def main() -> None:
    warnings.simplefilter("ignore")  # the interpreter computes on numpy, masked lanes included
    torch.set_num_threads(1)
    for check in (check_operands, check_one_output, check_tiles, check_default_order, check_mutants):
        check()
        print("ok", check.__name__, flush=True)


if __name__ == "__main__":
    with chunks(8, 16):  # of coarse lists, which the interpreter sorts in less time than longer ones
        sys.exit(main())
