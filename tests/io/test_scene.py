"""The Gaussians of a scene: shapes are checked, the degree follows from the coefficients."""

import pytest
import torch

from lanewise.errors import InputError
from lanewise.io.scene import Gaussians


def tensors(n: int = 3, rest: int = 15) -> dict[str, torch.Tensor]:
    return {
        "means": torch.zeros(n, 3),
        "quats": torch.zeros(n, 4),
        "scales": torch.zeros(n, 3),
        "opacities": torch.zeros(n),
        "sh0": torch.zeros(n, 1, 3),
        "shN": torch.zeros(n, rest, 3),
    }


@pytest.mark.parametrize(("rest", "degree"), [(0, 0), (3, 1), (8, 2), (15, 3), (24, 4)])
def test_degree_follows_from_the_coefficients(rest, degree):
    gaussians = Gaussians(**tensors(rest=rest))
    assert gaussians.sh_degree == degree
    assert len(gaussians) == 3


@pytest.mark.parametrize("name", ["quats", "scales", "opacities", "sh0", "shN"])
def test_a_wrong_shape_is_named_with_what_was_expected(name):
    bad = tensors()
    bad[name] = torch.zeros(4, 2)
    with pytest.raises(InputError, match=rf"Gaussians\.{name}: got shape \(4, 2\), expected shape \(3,"):
        Gaussians(**bad)


def test_a_number_of_coefficients_between_two_degrees_is_refused():
    with pytest.raises(InputError, match=r"Gaussians\.shN: got shape \(3, 7, 3\)"):
        Gaussians(**tensors(rest=7))


def test_moving_keeps_every_tensor():
    gaussians = Gaussians(**tensors())
    moved = gaussians.to("cpu")
    assert all(torch.equal(a, b) for a, b in zip(gaussians.tensors().values(), moved.tensors().values(), strict=True))
