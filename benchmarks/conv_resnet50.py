"""ResNet-50 on a GPU, torch's and protected: the first step beside fp64, and the losses of 50 steps.

usage: python benchmarks/conv_resnet50.py [--steps N] [--batch N] [--size N] [--device cuda]

Random images and labels, float32, SGD, TF32 off (`cudnn.allow_tf32` False) or on. Four runs of torch say how far apart
the same training ends up by rounding alone: as it is, with its channels last in memory, and twice with the start's
weights changed in their last place. The protected run starts where the first does, and has to stay as close to one of
them at every step as they do to each other. Two runs alone would be a toss of a coin: training diverges as chaos does,
and of three runs any one is the outsider. Writes results/conv_resnet50.json.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import time
from typing import Any

import torch
from _harness import merge
from _tables import table
from torch import Tensor, nn
from torch.nn import functional as F

from lanewise.audit.gate import gate
from lanewise.conv import protect

ROUNDED = ("rounded", "rounded_again")
OTHERS = ("channels_last", *ROUNDED)  # runs of torch beside the first


class Bottleneck(nn.Module):
    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.main = nn.Sequential(
            *_normed(inside, width, 1),
            nn.ReLU(),
            *_normed(width, width, 3, stride),
            nn.ReLU(),
            *_normed(width, out, 1),
        )
        self.shortcut = (
            nn.Sequential(*_normed(inside, out, 1, stride)) if stride > 1 or inside != out else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.main(x) + self.shortcut(x))


def _normed(c: int, k: int, kernel: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(c, k, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(k)


def resnet50(classes: int = 1000) -> nn.Module:
    """He et al. 2015, with the stride in the 3x3 convolution."""
    layers: list[nn.Module] = [*_normed(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inside = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            layers.append(Bottleneck(inside, width, 2 if block == 0 and width > 64 else 1))
            inside = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("no GPU here: nothing ran")
        return 5
    rows = [compare(tf32, options) for tf32 in (False, True)]
    print(table(rows))
    merge("conv_resnet50", rows, ("allow_tf32",))
    return 0 if all(row["gradients_pass"] and row["losses_pass"] for row in rows) else 1


def compare(tf32: bool, options: argparse.Namespace) -> dict[str, Any]:
    """One row: torch's runs, and the protected one."""
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    start = resnet50().to(options.device)
    images = torch.randn(options.batch, 3, options.size, options.size, device=options.device)
    labels = torch.randint(1000, (options.batch,), device=options.device)
    models = {name: copy.deepcopy(start) for name in ("torch", *OTHERS, "ours")}
    models["channels_last"].to(memory_format=torch.channels_last)
    for name in ROUNDED:
        round_otherwise(models[name])
    protect(models["ours"])
    exact, first, gradients = first_step(copy.deepcopy(start).double(), images.double(), labels), {}, {}
    for name in ("torch", "ours"):
        first[name], gradients[name] = first_step(copy.deepcopy(models[name]), images, labels)
    checks = [
        gate(name, g, exact[1][name], gradients["torch"][name], floor=2e-3 if tf32 else 2e-6)
        for name, g in gradients["ours"].items()
    ]
    worst = max(checks, key=lambda check: check.error / check.limit)
    losses, seconds = {}, {}
    for name, model in models.items():
        losses[name], seconds[name] = train(model, images, labels, options.steps)
    theirs = [losses[name] for name in ("torch", *OTHERS)]
    spread = max(max(map(_apart, a, b)) for a, b in itertools.combinations(theirs, 2))
    # The two runs alone, for whoever wants to toss that coin: torch's with its channels last, and ours, from torch's.
    pair = {f"{name}_from_torch": max(map(_apart, theirs[0], losses[name])) for name in ("channels_last", "ours")}
    distance = max(min(_apart(other, x) for other in step) for x, *step in zip(losses["ours"], *theirs, strict=True))
    return {
        "allow_tf32": tf32,
        "first_loss_apart": abs(first["ours"] - first["torch"]) / abs(first["torch"]),
        "gradients_pass": all(check.ok for check in checks),
        "worst_gradient": worst.name,
        "worst_error": worst.error,
        "its_limit": worst.limit,
        "torch_runs": len(theirs),
        "torch_runs_apart": spread,
        "ours_apart": distance,
        **pair,
        "losses_pass": distance <= max(spread, 1e-6),
        "torch_ms_step": seconds["torch"] / options.steps * 1e3,
        "ours_ms_step": seconds["ours"] / options.steps * 1e3,
        "steps": options.steps,
    }


def first_step(model: nn.Module, images: Tensor, labels: Tensor) -> tuple[float, dict[str, Tensor]]:
    """The loss and every gradient."""
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    return loss.item(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def train(model: nn.Module, images: Tensor, labels: Tensor, steps: int) -> tuple[list[float], float]:
    """The losses, and how long it took after the first step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses, start = [], 0.0
    for step in range(steps + 1):
        if step == 1:
            _ = losses[0].item()
            start = time.perf_counter()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    values = [loss.item() for loss in losses[:steps]]
    return values, time.perf_counter() - start


def round_otherwise(model: nn.Module) -> None:
    """Change every weight by about its last place."""
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1 + torch.finfo(p.dtype).eps * torch.randint_like(p, -1, 2))


def _apart(a: float, b: float) -> float:
    return abs(a - b) / abs(a)


if __name__ == "__main__":
    raise SystemExit(main())
