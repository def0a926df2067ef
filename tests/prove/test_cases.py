"""The gates of cases, with a planted fault each. The kernels run in this process on the emulator."""

from __future__ import annotations

import pytest
import torch

from lanewise.prove import cases as cases_
from lanewise.prove.cases import Case, cases
from lanewise.prove.execute import Emulation, emulated
from lanewise.prove.splat_gate import CPU, kernel_run, kernel_sides, random_upstream, replayed_run
from lanewise.target import find

pytest.importorskip("triton")


def named(part: str) -> Case:
    """The one case whose name holds `part`."""
    (case,) = (case for case in cases() if part in case.name)
    return case


def test_every_case_is_in_a_group_with_the_kernels_it_shares():
    assert named("129 Gaussians, 8 x 9").group == named("3rd degree, as in training").group == "rasterize"
    assert named("no Gaussians").group == "rasterize"
    assert {named(n).group for n in ("65 covariances", "1025 parameters", "degree 4")} == {"projection", "adam", "sh"}


def test_the_sum_of_absolute_gradients_is_that_of_one_pixel_at_a_time():
    scene = cases_.make_scene(3, N=9, width=5, height=4, absgrad=True).to(torch.float64)
    upstream = random_upstream(scene)
    _, grads, meta = kernel_run(scene.to(torch.float32), upstream)
    sides = kernel_sides(scene.to(torch.float32), meta, CPU)
    _, truth = replayed_run(scene, upstream, meta, sides)
    total = torch.zeros_like(truth["absgrad"])
    for y in range(4):
        for x in range(5):
            one = [torch.zeros_like(v) for v in upstream if v is not None]
            for mask, v in zip(one, upstream, strict=True):
                assert v is not None
                mask[..., y, x, :] = v[..., y, x, :]
            # The gradient of a pixel's share alone has nothing to cancel with.
            total += replayed_run(scene, (one[0], one[1]), meta, sides)[1]["absgrad"]
    torch.testing.assert_close(truth["absgrad"], total)
    torch.testing.assert_close(grads["absgrad"].double(), total, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("part", "name"), [("absolute gradients, as in training", "absgrad"), ("1 cameras, degree 1", "v_coeffs")]
)
def test_a_wrong_sum_is_seen(part: str, name: str, monkeypatch: pytest.MonkeyPatch):
    """A hundredth of a per cent on one gradient that a kernel gives."""
    if name == "absgrad":
        honest = cases_.kernel_run

        def wrong(*args, **kwargs):
            outputs, grads, meta = honest(*args, **kwargs)
            return outputs, {k: v * (1 + 1e-4 * (k == name)) for k, v in grads.items()}, meta

        monkeypatch.setattr(cases_, "kernel_run", wrong)
    else:
        honest_sh = cases_.spherical_harmonics

        def wrong_sh(degree, dirs, coeffs, seen, backend):
            colors = honest_sh(degree, dirs, coeffs, seen, backend=backend)
            return colors + (1e-4 * (colors - colors.detach()) if backend == "triton" else 0)

        monkeypatch.setattr(cases_, "spherical_harmonics", wrong_sh)
    with emulated(Emulation(find("gfx942"))):
        gates = named(part).gates()
    assert name in {gate.name for gate in gates if not gate.ok}
    assert all(gate.ok for gate in gates if not gate.name.startswith(("v_", "absgrad")))
