"""Which configurations of which kernels are launched, without running any."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from lanewise.prove.cases import Case
from lanewise.prove.launches import Configuration, configuration, launches_go_to


@contextlib.contextmanager
def dry(launched: list[Configuration], longest: int = 1) -> Iterator[None]:
    """In the block launches are written down and do nothing: memory holds zeros, and every list of tiles one entry, but
    for the longest of the coarse ones."""
    from lanewise.splat.binning import launch

    def write_down(kernel: Any, _: tuple[int, ...], arguments: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        launched.append(configuration(kernel, arguments, options))

    with contextlib.ExitStack() as stack:
        for owner, name in ((torch, "empty"), (torch, "empty_like"), (Tensor, "new_empty")):
            stack.enter_context(mock.patch.object(owner, name, _zeroed(getattr(owner, name))))
        stack.enter_context(mock.patch.object(launch._Later, "sums", return_value=(1, 1, longest)))
        stack.enter_context(launches_go_to(write_down))
        yield


def _zeroed(allocate: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *args, **kwargs: allocate(*args, **kwargs).zero_()


# What only launches have that are too large to be executed here: types of arguments by the kernel's name.
LARGE: dict[str, tuple[dict[str, str], ...]] = {
    # 2^15 coarse tiles; 2^27 Gaussians of all images
    "binning.emit": ({"keys": "*i32", "pairs": "*i32"}, {"pairs": "*i64"}),
    "binning.divide_count": ({"pairs": "*i64", "sorted_pairs": "*i64"},),
    "binning.divide": ({"sorted_pairs": "*i64"}, {"capacity": "i64", "bounds": "*i64"}),  # 2^31 entries
    "adam.step": ({"size": "i64"},),  # 2^31 numbers
    "photometric.similarity": ({"plane": "i64"},),
    "photometric.gradient": ({"plane": "i64"},),
}


def of_large_launches(configurations: Iterable[Configuration]) -> set[Configuration]:
    """Configurations of launches on 2^31 of something, made from those of small ones; they are only compiled."""
    return {
        dataclasses.replace(config, signature=tuple((name, types.get(name, kind)) for name, kind in config.signature))
        for config in configurations
        for types in LARGE.get(config.name, ())
        if "constexpr" not in {dict(config.signature)[name] for name in types}  # what is not there grows no larger
    }


def recorded(cases: Iterable[Case]) -> dict[str, set[Configuration]]:
    """The configurations that cases launch, by the case's name."""
    found = {}
    for case in cases:
        launched: list[Configuration] = []
        # Kernels that do nothing leave nothing that could be compared: only what was launched counts.
        longest = 2**10 if "binning.merge_lists" in case.kernels else 1
        with (
            dry(launched, longest),
            contextlib.suppress(Exception),
            mock.patch("lanewise.prove.cases.replayed_truth", _stop),
        ):
            case.gates()
        found[case.name] = set(launched)
    return found


def _stop(*_: Any) -> Any:
    raise StopIteration
