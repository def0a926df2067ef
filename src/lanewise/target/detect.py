"""Which target a torch device is."""

from __future__ import annotations

import torch

from lanewise.errors import InputError, LanewiseError
from lanewise.target.table import Target, find


def detect(device: torch.device | str | None = None) -> Target:
    """The target of a device; of the first GPU when there is one, else of the CPU.

    Args:
        device: a torch device, or None.

    Raises:
        InputError: a device that is not there, or an architecture that is not in the table.
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise InputError("device", got=repr(device), expected="a torch device such as 'cpu' or 'cuda:0'") from error
    if place.type == "cpu":
        return find("cpu")
    if place.type != "cuda":
        raise InputError(
            "device",
            got=repr(str(place)),
            expected="'cpu' or 'cuda' (ROCm devices are called 'cuda' too)",
            why="other accelerators have no kernels here",
            fix="device='cpu'",
        )
    try:
        properties = torch.cuda.get_device_properties(place)
    except (AssertionError, RuntimeError) as error:
        raise InputError(
            "device", got=repr(str(place)), expected="a GPU that torch sees", fix="device='cpu'"
        ) from error
    name = architecture(properties)
    target = find(name)
    reported = getattr(properties, "warp_size", target.wave)
    if reported != target.wave:
        raise LanewiseError(
            f"{name} reports waves of {reported} lanes, the table of targets says {target.wave}: "
            "please report this; nothing may be launched on a guess."
        )
    return target


def architecture(properties: object) -> str:
    """The architecture's name from torch's device properties: `gcnArchName` on ROCm, the compute capability on CUDA."""
    gcn = getattr(properties, "gcnArchName", "")
    if torch.version.hip and gcn:
        return str(gcn)
    return f"sm_{getattr(properties, 'major')}{getattr(properties, 'minor')}"  # noqa: B009 - torch ships no type for it
