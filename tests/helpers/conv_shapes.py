"""Small convolutions for property tests, and the geometry of the address-window incident."""

from hypothesis import assume
from hypothesis import strategies as st

from lanewise.conv.problem import Problem, output_extent


@st.composite
def problems(draw, direction=None, dims=None):
    """Any small convolution, with each of its three directions."""
    dims = draw(st.sampled_from([2, 3])) if dims is None else dims
    groups = draw(st.integers(1, 3))

    def triple(low, high, default):
        return tuple(draw(st.integers(low, high)) if axis >= 3 - dims else default for axis in range(3))

    kernel, stride, dilation = triple(1, 3, 1), triple(1, 3, 1), triple(1, 2, 1)
    padding, spatial_in = triple(0, 2, 0), triple(1, 7, 1)
    geometry = list(zip(spatial_in, kernel, stride, padding, dilation, strict=True))
    spatial_out = tuple(output_extent(*axis) for axis in geometry)
    assume(min(spatial_out) >= 1)
    return Problem(
        n=draw(st.integers(1, 4)),
        c=groups * draw(st.integers(1, 3)),
        k=groups * draw(st.integers(1, 3)),
        spatial_in=spatial_in,
        spatial_out=spatial_out,
        kernel=kernel,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        direction=draw(st.sampled_from(["forward", "input_grad", "weight_grad"])) if direction is None else direction,
        dims=dims,
    )


def incident(n, c=96, k=64, extent=512, direction="weight_grad"):
    """nn.Conv2d(96, 64, kernel_size=1) on [n, 96, 512, 512], fp32."""
    space = (1, extent, extent)
    return Problem(n=n, c=c, k=k, spatial_in=space, spatial_out=space, kernel=(1, 1, 1), direction=direction)
