"""Scenes for the splat tests, drawn by hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from lanewise.prove.scenes import Scene, make_scene

COUNTS = [0, 1, 2, 7, 31, 32, 33, 63, 64, 65, 97, 128]
SIZES = [1, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33]
DIFFERENTIABLE = ("means", "quats", "scales", "opacities", "colors", "viewmats", "Ks", "backgrounds")


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Any scene of `make_scene`."""
    sh_degree = draw(st.sampled_from([None, None, 0, 1, 3]))
    return make_scene(
        draw(st.integers(0, 2**31 - 1)),
        N=draw(st.sampled_from(COUNTS)),
        batch=draw(st.sampled_from([(), (), (2,), (3,), (2, 1)])),
        C=draw(st.sampled_from([1, 1, 2])),
        width=draw(st.sampled_from(SIZES)),
        height=draw(st.sampled_from(SIZES)),
        sh_degree=sh_degree,
        channels=draw(st.sampled_from([1, 3, 4, 7])),
        shapes=draw(st.sampled_from(["mixed", "round", "needles", "discs"])),
        near=draw(st.booleans()),
        background=draw(st.booleans()),
        tile_size=draw(st.sampled_from([4, 8, 16, 32])),
        rasterize_mode=draw(st.sampled_from(["classic", "antialiased"])),
    )
