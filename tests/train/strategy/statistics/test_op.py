from __future__ import annotations

import pytest
import torch

from lanewise.audit.faults import FAULTS
from lanewise.audit.gate import GateError, require
from lanewise.errors import InputError
from lanewise.prove.training_gate import COUNTS, Place, gate_statistics, statistics
from lanewise.train.strategy.statistics import observe


def test_by_hand():
    """Two cameras, three Gaussians: seen by both, by the second, by none (one radius is 0)."""
    v = torch.tensor([[[0.3, 0.4], [9.0, 9.0], [9.0, 9.0]], [[0.0, -1.0], [0.5, 0.0], [9.0, 9.0]]])
    radii = torch.tensor([[[2, 3], [0, 5], [0, 0]], [[7, 1], [4, 4], [9, 0]]], dtype=torch.int32)
    grad2d, count, widest = torch.tensor([1.0, 0, 0]), torch.tensor([5.0, 0, 0]), torch.tensor([0.0, 0.5, 0])
    observe(v, radii, 20, 10, grad2d, count, widest)
    torch.testing.assert_close(grad2d, torch.tensor([1 + (6**2 + 4**2) ** 0.5 + 10, 10, 0]))
    assert count.tolist() == [7, 1, 0]
    torch.testing.assert_close(widest, torch.tensor([7 / 20, 0.5, 0]))


@pytest.mark.parametrize("cameras", [0, 1, 3])
@pytest.mark.parametrize("N", COUNTS)
def test_float32_passes_the_gate(cameras: int, N: int):
    require(*gate_statistics(Place("auto"), cameras, N))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_gate_notices_a_faulty_gradient(fault):
    with pytest.raises(GateError, match="grad2d"):
        require(*gate_statistics(Place("reference"), 3, 97, fault))


def test_strides_do_not_matter():
    for a, b in zip(*(statistics(Place("auto"), 2, 31, strided=strided) for strided in (False, True)), strict=True):
        assert torch.equal(a, b)


def test_the_guard():
    v, radii = torch.full((1, 4, 2), torch.nan), torch.ones(1, 4, 2, dtype=torch.int32)
    for value, seen in ((1, 0.0), (0, 1.0)):
        sums = [torch.zeros(4) for _ in range(3)]
        observe(v, radii, 5, 5, *sums, skip=torch.tensor([value], dtype=torch.int32))
        assert sums[1].tolist() == [seen] * 4
        assert sums[0].isnan().all() == bool(seen)


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"v_means2d": torch.zeros(2, 3, 3)}, "v_means2d"),
        ({"radii": torch.zeros(2, 3, 2)}, "radii"),
        ({"radii": torch.zeros(2, 4, 2, dtype=torch.int32)}, "radii"),
        ({"radii": torch.zeros(2, 3, 2, dtype=torch.int32, device="meta")}, "radii"),
        ({"width": 0}, "width"),
        ({"height": 2.5}, "height"),
        ({"grad2d": torch.zeros(4)}, "grad2d"),
        ({"grad2d": None}, "grad2d"),
        ({"count": torch.zeros(3, dtype=torch.float64)}, "count"),
        ({"count": torch.zeros(6)[::2]}, "count"),
        ({"widest": torch.zeros(2)}, "widest"),
        ({"skip": torch.zeros(1)}, "skip"),
        ({"backend": "triton"}, "backend"),
    ],
)
def test_bad_input_names_the_argument(change: dict, argument: str):
    values = {
        "v_means2d": torch.zeros(2, 3, 2),
        "radii": torch.ones(2, 3, 2, dtype=torch.int32),
        "width": 8,
        "height": 8,
        "grad2d": torch.zeros(3),
        "count": torch.zeros(3),
    }
    with pytest.raises(InputError, match=f"^{argument}: got .*, expected "):
        observe(**{**values, **change})
    assert not values["count"].any()
