"""Small models for training runs that are watched, and a fault in one of their layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lanewise.audit.call import Call
from lanewise.audit.faults import Fault, planted_call
from lanewise.audit.watching import Watch, watch


class FaultyLinear(nn.Linear):
    """A linear layer whose gradient in one argument is faulty."""

    def __init__(self, width: int, out: int, fault: Fault | None, argument: str = "weight") -> None:
        super().__init__(width, out)
        like = {"input": torch.zeros(1, width), "weight": self.weight.detach(), "bias": torch.zeros(out)}
        call = Call(F.linear, kwargs=like)
        self.call: Callable[..., Any] = F.linear if fault is None else planted_call(call, argument, fault).fn

    def forward(self, input: Tensor) -> Tensor:
        return self.call(input=input, weight=self.weight, bias=self.bias)


class FaultyConv(nn.Conv2d):
    """A convolution whose weight gradient is faulty."""

    def __init__(self, channels: int, out: int, fault: Fault | None) -> None:
        super().__init__(channels, out, 3, padding=1)
        like = {"input": torch.zeros(1, channels, 4, 4), "weight": self.weight.detach(), "bias": torch.zeros(out)}
        call = Call(_conv, kwargs=like)
        self.call: Callable[..., Any] = _conv if fault is None else planted_call(call, "weight", fault).fn

    def forward(self, input: Tensor) -> Tensor:
        return self.call(input=input, weight=self.weight, bias=self.bias)


def _conv(input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.conv2d(input, weight, bias, padding=1)


def mlp(fault: Fault | None = None, argument: str = "weight") -> nn.Sequential:
    """Three linear layers, [16] to [4], the middle one with the fault."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(16, 70), nn.ReLU(), FaultyLinear(70, 70, fault, argument), nn.ReLU(), nn.Linear(70, 4)
    )


def convnet(fault: Fault | None = None) -> nn.Sequential:
    """Two convolutions with a batch norm, and a linear layer: [3, 6, 6] to [4]; the second one with the fault."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), FaultyConv(6, 6, fault), nn.Flatten(),
        nn.Linear(216, 4),
    )  # fmt: skip


def train(model: nn.Module, steps: int, shape: tuple[int, ...] = (16,), *, adam: bool = True, **options: Any) -> Watch:
    """Train on a fixed random teacher, watched; until the first finding."""
    torch.manual_seed(1)
    teacher = torch.randn(torch.Size(shape).numel(), 4)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3) if adam else torch.optim.SGD(model.parameters(), 1e-2)
    options.setdefault("on_finding", "ignore")
    with watch(model, optimizer, **options) as running:
        for _ in range(steps):
            x = torch.randn(24, *shape)
            loss = F.mse_loss(model(x), torch.tanh(x.flatten(1) @ teacher))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if running.findings:
                break
    return running
