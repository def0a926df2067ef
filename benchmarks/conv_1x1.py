"""Incident B's layer: x [64, 96, 512, 512] fp32, Conv2d(96, 64, 1), NCHW, beside cuDNN with TF32 off and on.

usage: PYTHONPATH=src python benchmarks/conv_1x1.py [--repeats N] [--batch N]

Three directions. Ours runs in slices of at most 32 images, so that no tensor of a launch passes 2^32-1 bytes, and the
time is that of all slices. The gate comes first: relative errors against fp64, a red gate prints no figures. Bandwidth
is the bytes of the tensors, read or written once, over the time; `read` and `copy` are what this GPU reaches.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import torch
from _harness import interleaved, median, write
from torch import Tensor

from lanewise.audit.gate import GateResult, gate, require
from lanewise.conv import launch
from lanewise.conv.problem import Problem

C, K, SIDE, SLICE = 96, 64, 512, 32
DIRECTIONS = ("forward", "input", "weight")


def problem(n: int) -> Problem:
    size, one = (1, SIDE, SIDE), (1, 1, 1)
    return Problem(n, C, K, size, size, one, one, (0, 0, 0), one, 1, torch.float32, False)


class Layer:
    """The layer's tensors, and each direction by us and by cuDNN; every output is written anew."""

    def __init__(self, batch: int):
        self.x = torch.randn(batch, C, SIDE, SIDE, device="cuda")
        self.w = torch.randn(K, C, 1, 1, device="cuda") / 10
        self.dy = torch.randn(batch, K, SIDE, SIDE, device="cuda")
        self.slices = [slice(n, min(n + SLICE, batch)) for n in range(0, batch, SLICE)]

    def ours(self, direction: str, precision: str) -> Tensor:
        if direction == "weight":
            parts = [launch.weight_grad(self.x[s], self.dy[s], self.problem(s), precision) for s in self.slices]
            return torch.stack(parts).sum(0)
        given, out = (
            (self.x, torch.empty_like(self.dy)) if direction == "forward" else (self.dy, torch.empty_like(self.x))
        )
        for s in self.slices:
            if direction == "forward":
                launch.forward(given[s], self.w, None, self.problem(s), precision, out=out[s])
            else:
                launch.input_grad(given[s], self.w, None, self.problem(s), precision, out=out[s])
        return out

    def problem(self, part: slice) -> Problem:
        return problem(part.stop - part.start)

    def cudnn(self, direction: str, tf32: bool) -> Tensor:
        torch.backends.cudnn.allow_tf32 = tf32
        if direction == "forward":
            return torch.conv2d(self.x, self.w)
        mask = [direction == "input", direction == "weight", False]
        steps = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
        return torch.ops.aten.convolution_backward(self.dy, self.x, self.w, None, *steps, mask)[mask.index(True)]

    def truth(self, direction: str, images: list[int]) -> Tensor:
        """fp64, of all images for the weights, of some for the others."""
        w = self.w.double()[:, :, 0, 0]
        if direction == "weight":
            pairs = zip(self.dy, self.x, strict=True)
            return torch.stack([torch.einsum("khw,chw->kc", dy.double(), x.double()) for dy, x in pairs]).sum(0)
        given, w = (self.x, w) if direction == "forward" else (self.dy, w.T)
        return torch.stack([torch.einsum("oi,ihw->ohw", w, given[n].double()) for n in images])

    def variants(self, direction: str) -> dict[str, Callable[[], Tensor]]:
        return {
            "ours fp32": lambda: self.ours(direction, "fp32"),
            "cudnn fp32": lambda: self.cudnn(direction, False),
            "ours tf32": lambda: self.ours(direction, "tf32"),
            "cudnn tf32": lambda: self.cudnn(direction, True),
        }


def errors(layer: Layer, direction: str) -> dict[str, GateResult]:
    """Every variant's error; ours may have 1e-6 in fp32. Memory is NaN before each writes it."""
    images = sorted({0, len(layer.x) // 2, len(layer.x) - 1})
    truth = layer.truth(direction, images)
    results = {}
    for name, run in layer.variants(direction).items():
        poison = torch.full_like(layer.x, torch.nan)
        del poison  # what the next output is written to
        out = run()
        assert not out.isnan().any(), f"{name} {direction}: something was not written"
        got = out[:, :, 0, 0] if direction == "weight" else out[images]
        results[name] = gate(f"{name} {direction}", got, truth, floor=1e-6 if name == "ours fp32" else 2e-3)
        del out
    return results


def bandwidth(bytes_: int, run: Callable[[], object], repeats: int) -> float:
    return bytes_ / median(interleaved({"run": run}, repeats, warmup=3)["run"]) / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU on this machine: nothing was run")
        return 5
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    layer = Layer(args.batch)
    read = bandwidth(layer.x.nbytes, layer.x.amax, args.repeats)
    copy = bandwidth(2 * layer.x.nbytes, layer.x.clone, args.repeats)
    print(f"read {read:.0f} GB/s, copy {copy:.0f} GB/s")
    moved, rows = layer.x.nbytes + layer.dy.nbytes, []
    for direction in DIRECTIONS:
        gates = errors(layer, direction)
        require(*(result for name, result in gates.items() if name.startswith("ours")))
        times = interleaved(layer.variants(direction), args.repeats, warmup=3)
        for name, values in times.items():
            ms = median(values)
            row = {"direction": direction, "variant": name, "ms": ms, "fastest": min(values), "slowest": max(values)}
            row |= {"error": gates[name].error, "GB/s": moved / ms / 1e6}
            row["times_as_fast_as_cudnn"] = median(times[name.replace("ours", "cudnn")]) / ms
            rows.append(row | {"read_GB/s": read, "copy_GB/s": copy})
            print(
                f"{direction:8} {name:10} {ms:7.3f} ms ({min(values):.3f}..{max(values):.3f})"
                f" {row['GB/s']:6.0f} GB/s  error {row['error']:.1e}  {row['times_as_fast_as_cudnn']:.2f}x",
                flush=True,
            )
    first = layer.ours("weight", "fp32")
    same = all(torch.equal(layer.ours("weight", "fp32"), first) for _ in range(10))
    print(f"weight gradient, ten more runs: {'the same bits' if same else 'DIFFERENT BITS'}")
    print(write("conv_1x1", rows))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
