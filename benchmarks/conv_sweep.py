"""The address-window incident's sweep on a GPU: the weight's gradient of every batch 43..192, beside fp64.

usage: python benchmarks/conv_sweep.py [--backends ours,vendor] [--channels 96x64,64x96,48x200,128x128]

Images are 512 x 512, weights 1 x 1, float32. The truth of a batch is that of the one before and one image more. Writes
results/conv_sweep.json: for each pair of channels and backend the largest relative error, the batch that has it, and
how many batches are over the window, over 1e-6, and zero.
"""

from __future__ import annotations

import argparse
import os

import torch
from _harness import merge
from _tables import table
from torch import Tensor

from lanewise.audit.gate import relative_error
from lanewise.conv import op
from lanewise.target import detect

FIRST, LAST, EXTENT = 43, 192, 512
LIMIT = 1e-6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default="ours,vendor")
    parser.add_argument("--channels", default="96x64,64x96,48x200,128x128")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here: nothing ran")
        return 5
    torch.backends.cudnn.allow_tf32 = False
    rows = []
    for pair in options.channels.split(","):
        c, k = map(int, pair.split("x"))
        rows += sweep(c, k, options.backends.split(","))
        torch.cuda.empty_cache()
    print(table(rows))
    merge("conv_sweep", rows, ("channels", "backend"))
    return 1 if any(row["backend"] == "ours" and row["over_limit"] for row in rows) else 0


def sweep(c: int, k: int, backends: list[str]) -> list[dict[str, object]]:
    """One row a backend."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    x, dy = (torch.empty(LAST, ch, EXTENT, EXTENT, device="cuda").normal_(generator=generator) for ch in (c, k))
    errors: dict[str, dict[int, float]] = {backend: {} for backend in backends}
    zeros = dict.fromkeys(backends, 0)
    truth = torch.zeros(k, c, dtype=torch.float64, device="cuda")
    for n in range(1, LAST + 1):
        truth += dy[n - 1].flatten(1).double() @ x[n - 1].flatten(1).double().T
        if n < FIRST:
            continue
        for backend in backends:
            dw = gradient(backend, x[:n], dy[:n])
            errors[backend][n] = relative_error(dw[:, :, 0, 0], truth)
            zeros[backend] += not dw.any()
    window = detect("cuda").window_bytes
    return [
        {
            "channels": f"{c}x{k}",
            "backend": backend,
            "batches": len(of),
            "over_window": sum(n * max(c, k) * EXTENT * EXTENT * 4 > window for n in of),
            "largest_error": max(of.values()),
            "at_batch": max(of, key=of.__getitem__),
            "over_limit": sum(not error <= LIMIT for error in of.values()),
            "zero": zeros[backend],
            "allow_tf32": torch.backends.cudnn.allow_tf32,
        }
        for backend, of in errors.items()
    ]


def gradient(backend: str, x: Tensor, dy: Tensor) -> Tensor:
    os.environ["LANEWISE_CONV"] = backend
    with torch.no_grad():
        return op.weight_grad(x, dy, [1, 1], False, [1, 1], [0, 0], [1, 1], 1, "fp32", None)


if __name__ == "__main__":
    raise SystemExit(main())
