"""Run by tests/train/test_interpreted.py in a process of its own: the Triton kernels that training adds in Triton's
interpreter, against the gate."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # before anything imports Triton

import sys
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

import lanewise  # noqa: F401 - before torch
from lanewise.audit.faults import FAULTS
from lanewise.audit.gate import GateError, require
from lanewise.prove.training_gate import (
    AdamState,
    GateResult,
    Place,
    gate_adam,
    gate_photometric,
    gate_statistics,
    loss_and_gradient,
    pictures,
)
from lanewise.train.photometric import kernels, photometric_loss

HERE = Place("triton")


def poison(allocate: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`allocate`, with NaN in what nobody has written."""

    def allocate_and_fill(*args: object, **kwargs: object) -> Tensor:
        out = allocate(*args, **kwargs)
        return out.fill_(torch.nan) if out.is_floating_point() else out

    return allocate_and_fill


def photometric() -> None:
    require(*gate_photometric(pictures((2, 12, 13, 3), masked=True), 0.2, HERE))
    require(*gate_photometric(pictures((1, 43, 11, 1), smooth=True), 0.2, HERE))  # two strips of rows
    require(*gate_photometric(pictures((1, 11, 129, 1)), 1.0, HERE))  # two strips of columns
    require(*gate_photometric(pictures((1, 11, 11, 4), smooth=True, masked=True), 1.0, HERE))
    require(*gate_photometric(pictures((1, 33, 43, 3), masked=True), 0.0, HERE))
    require(*gate_photometric(pictures((2, 1, 1, 1)), 0.0, HERE))
    nothing = (*pictures((1, 11, 11, 1))[:2], torch.zeros(1, 11, 11, dtype=torch.bool))
    assert all((x == 0).all() for x in loss_and_gradient(nothing, 0.2, HERE))
    assert photometric_loss(*pictures((0, 11, 11, 3))[:2], backend="triton") == 0
    plain = pictures((1, 12, 13, 1), masked=True)  # without a gradient, the same loss
    assert photometric_loss(*plain, backend="triton") == loss_and_gradient(plain, 0.2, HERE)[0]


def adam() -> None:
    for N in (0, 1, 97, 1025):
        require(*gate_adam(AdamState((N,)), HERE))
        require(*gate_adam(AdamState((N, 5, 3), selective=True, skip=0), HERE))
    still = AdamState((31, 3), skip=1)
    assert all(torch.equal(a, b) for a, b in zip(still.run(HERE), AdamState((31, 3), steps=0).run(HERE), strict=True))


def statistics() -> None:
    for N in (0, 1, 97, 257):
        for cameras in (0, 1, 3):
            require(*gate_statistics(HERE, cameras, N, strided=N == 97, widest=N != 1, skip=0 if N == 257 else None))
    require(*gate_statistics(HERE, 2, 31, skip=1))


def mutants() -> None:
    """Every gate is red when a gradient or a kernel is broken."""
    for fault in FAULTS:
        caught(lambda fault=fault: gate_adam(AdamState((97, 3)), HERE, fault), fault.name)
        caught(lambda fault=fault: gate_statistics(HERE, 3, 97, fault), fault.name)
    small = pictures((1, 12, 11, 1), masked=True)
    for name, wrong in {"_BORDER": 4, "_G0": 0.0, "_G4": float(kernels._G4.value) * 1.001, "_C2": 9.01e-4}.items():
        right = getattr(kernels, name)
        setattr(kernels, name, type(right)(wrong))
        caught(lambda: gate_photometric(small, 0.2, HERE), name)
        setattr(kernels, name, right)
    require(*gate_photometric(small, 0.2, HERE))


def caught(gates: Callable[[], list[GateResult]], name: str) -> None:
    try:
        require(*gates())
    except GateError:
        return
    raise AssertionError(f"the gate did not notice {name}")


def main() -> None:
    warnings.simplefilter("ignore")  # the interpreter computes on numpy, masked lanes included
    torch.set_num_threads(1)
    Tensor.new_empty = poison(Tensor.new_empty)
    torch.empty_like = poison(torch.empty_like)
    for check in (photometric, adam, statistics, mutants):
        check()
        print("ok", check.__name__, flush=True)


if __name__ == "__main__":
    sys.exit(main())
