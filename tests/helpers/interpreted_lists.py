"""Run by tests/splat/test_interpreted.py in a process of its own: how lists are made, in Triton's interpreter."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # before anything imports Triton

import sys
import warnings

import torch
from splat_lists import (
    GRIDS,
    check_canary,
    check_capacity,
    check_lists,
    check_one_by_one,
    check_one_by_one_is_checked,
    check_parts,
    check_wide,
    chunks,
)
from splat_scenes import make_scene

import lanewise  # noqa: F401 - before torch
from lanewise.prove.splat_gate import Kernels


def main() -> None:
    warnings.simplefilter("ignore")  # the interpreter computes on numpy, masked lanes included
    torch.set_num_threads(1)
    kernels = Kernels("triton", "cpu")
    scene = make_scene(12, N=7, C=2, width=9, height=7, background=True, tile_size=4)
    for N, block in ((0, 8), (1, 2048), (31, 4), (33, 4), (65, 2)):
        longest = check_one_by_one(kernels, N, 8, 16, block, width=20)
        assert longest > 32 or N < 65
    check_one_by_one_is_checked(kernels)
    print("ok one by one", flush=True)
    with chunks(8, 16):  # which the interpreter sorts in less time than the product's
        for grid in GRIDS:
            check_lists(kernels, *grid, N=33)
        print("ok lists", flush=True)
        check_wide(kernels, scene)
        print("ok wide", flush=True)
        check_parts(kernels, scene)
        print("ok parts", flush=True)
        check_capacity(kernels, scene)
        print("ok capacity", flush=True)
        check_canary(kernels, scene)
        print("ok canary", flush=True)


if __name__ == "__main__":
    sys.exit(main())
