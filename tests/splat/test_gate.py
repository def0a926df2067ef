"""The CPU kernels and the whole of `rasterization` against the fp64 reference, and proof that the comparison can
fail."""

import pytest
from hypothesis import given, settings
from splat_scenes import DIFFERENTIABLE, Scene, make_scene, scenes

from lanewise.audit.faults import FAULTS
from lanewise.audit.gate import GateError, require
from lanewise.prove.splat_gate import gate_project, gate_rasterization, gate_rasterize, true_rasterization

NAMED = {
    "plain": {},
    "needles near the camera": {"shapes": "needles", "near": True, "N": 97},
    "discs, SH 3, N no multiple of 32": {"shapes": "discs", "sh_degree": 3, "N": 97},
    "three batches of one camera": {"batch": (3,), "C": 1, "N": 65, "sh_degree": 3},
    "two batches of two cameras": {"batch": (2,), "C": 2, "N": 33},
    "antialiased over a background": {"rasterize_mode": "antialiased", "background": True},
    "one pixel": {"width": 1, "height": 1},
    "crowded, small tiles": {"N": 700, "tile_size": 8, "width": 33, "height": 31},
    "seven channels, SH-free": {"channels": 7, "tile_size": 32},
}


@pytest.mark.parametrize("name", NAMED)
def test_rasterization_passes_the_gate(name):
    scene = make_scene(5, **NAMED[name])
    truth = true_rasterization(scene)
    require(*gate_rasterization(scene, truth))
    assert truth.excess <= 0, "more pixels than allowed are decided otherwise than in fp64"


@settings(max_examples=15, deadline=None)
@given(scenes())
def test_rasterization_passes_the_gate_on_any_scene(scene: Scene):
    truth = true_rasterization(scene)
    require(*gate_rasterization(scene, truth))
    assert truth.excess <= 0


@settings(max_examples=25, deadline=None)
@given(scenes())
def test_the_projection_passes_the_gate_on_any_scene(scene: Scene):
    require(*gate_project(scene))


@settings(max_examples=25, deadline=None)
@given(scenes())
def test_the_rasterizer_passes_the_gate_on_any_scene(scene: Scene):
    require(*gate_rasterize(scene))


@pytest.fixture(scope="module")
def everything():
    """A scene in which every argument has a gradient, and its truth."""
    scene = make_scene(7, N=65, batch=(2,), C=2, sh_degree=3, background=True, rasterize_mode="antialiased")
    truth = true_rasterization(scene)
    require(*gate_rasterization(scene, truth))
    return scene, truth


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("gradient", DIFFERENTIABLE)
def test_a_planted_fault_is_caught_end_to_end(everything, gradient, fault):
    with pytest.raises(GateError, match=f"{gradient}: relative error"):
        require(*gate_rasterization(*everything, (gradient, fault)))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("gradient", ["means2d", "conics", "colors", "opacities"])
def test_a_planted_fault_is_caught_in_the_rasterizer(gradient, fault):
    with pytest.raises(GateError, match=f"{gradient}: relative error"):
        require(*gate_rasterize(make_scene(8, N=97, width=9), (gradient, fault)))
