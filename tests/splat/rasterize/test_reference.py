import math

import pytest
import torch
from splat_scenes import make_scene

from lanewise.splat import bin_gaussians, rasterization
from lanewise.splat.rasterize import reference


def operands(seed=0, N=20, D=3, **scene):
    """Flat fp64 operands and lists of a projected scene."""
    s = make_scene(seed, N=N, channels=D, **scene)
    _, _, meta = rasterization(**s.tensors, width=s.width, height=s.height, **s.options)
    g = torch.Generator().manual_seed(seed)
    M = meta["depths"].numel()
    flat = [meta[k].reshape(M, -1).double() for k in ("means2d", "conics")]
    colors, opacities = torch.randn(M, D, generator=g, dtype=torch.float64), meta["opacities"].reshape(M).double()
    lists = (s.width, s.height, meta["tile_size"], meta["isect_offsets"].flatten(0, -3), meta["flatten_ids"])
    return (*flat, colors, opacities), lists


def naive_pixel(x, y, means2d, conics, colors, opacities, order):
    """The definition, one pixel and one Gaussian at a time, in Python floats."""
    T, color, last = 1.0, [0.0] * colors.shape[1], -1
    for position, g in enumerate(order):
        dx, dy = means2d[g, 0].item() - (x + 0.5), means2d[g, 1].item() - (y + 0.5)
        a, b, c = conics[g].tolist()
        sigma = 0.5 * (a * dx * dx + c * dy * dy) + b * dx * dy
        alpha = min(0.999, opacities[g].item() * math.exp(-sigma))
        if sigma < 0 or alpha < 1 / 255:
            continue
        if T * (1 - alpha) <= 1e-4:
            break
        color = [v + T * alpha * w for v, w in zip(color, colors[g].tolist(), strict=True)]
        T, last = T * (1 - alpha), position
    return color, T, last


def test_the_reference_is_the_definition():
    tensors, lists = operands(3, N=90, width=11, height=9, tile_size=8)
    image = reference.rasterize(*tensors, *lists)
    offsets = [*lists[3].flatten().tolist(), lists[4].numel()]
    stopped = 0
    for y in range(9):
        for x in range(11):
            tile = y // 8 * 2 + x // 8
            order = lists[4][offsets[tile] : offsets[tile + 1]].tolist()
            color, T, last = naive_pixel(x, y, *tensors, order)
            torch.testing.assert_close(image.colors[0, y, x], torch.tensor(color, dtype=torch.float64))
            assert image.transmittance[0, y, x].item() == pytest.approx(T)
            assert image.last_ids[0, y, x].item() == (last + offsets[tile] if last >= 0 else -1)
            stopped += T < 0.02
    assert stopped > 0


@pytest.mark.parametrize("D", [1, 3])
def test_gradcheck_in_slow_mode(D):
    tensors, lists = operands(1, N=8, D=D, width=5, height=4, tile_size=4, shapes="round")
    sides = torch.cat([reference.own_sides(*_tile(tensors, lists, t)) for t in range(2)])
    assert (sides == reference.COUNTED).sum() > 30

    def outputs(means2d, conics, colors, opacities):
        return reference.rasterize(means2d, conics, colors, opacities, *lists, sides=sides)[:2]

    inputs = [x.clone().requires_grad_() for x in tensors]
    assert torch.autograd.gradcheck(outputs, inputs, fast_mode=False, eps=1e-7, atol=1e-6, rtol=1e-4)


def _tile(tensors, lists, tile):
    offsets = [*lists[3].flatten().tolist(), lists[4].numel()]
    g = lists[4][offsets[tile] : offsets[tile + 1]].long()
    index = torch.arange(16)
    pixels = torch.stack([tile * 4 + index % 4, index // 4], -1) + 0.5
    return tensors[0][g], tensors[1][g], tensors[3][g], pixels.double()


def one_pixel(opacities):
    """Gaussians of these opacities stacked over the centre of a single pixel; their colours are 1, 2, 4, ..."""
    N = len(opacities)
    means2d, conics = torch.full((1, N, 2), 0.5), torch.tensor([1.0, 0, 1]).repeat(1, N, 1)
    o = torch.tensor([opacities])
    radii = torch.ones(1, N, 2, dtype=torch.int32)
    lists = bin_gaussians(means2d, radii, torch.arange(N)[None].float(), conics, o, tile_size=4, width=1, height=1)
    colors = 2.0 ** torch.arange(N)[:, None]
    return reference.rasterize(means2d[0], conics[0], colors, o[0], 1, 1, 4, lists.isect_offsets, lists.flatten_ids)


def test_the_cap_the_threshold_and_the_stop():
    assert one_pixel([1.0]).transmittance.item() == pytest.approx(0.001, rel=1e-4)
    assert one_pixel([1 / 254, 1 / 256]).transmittance.item() == pytest.approx(1 - 1 / 254)
    # 0.99 twice leaves 1e-4 or less: the second is not drawn, nor is anything behind it.
    image = one_pixel([0.99, 0.991, 0.5])
    assert image.transmittance.item() == pytest.approx(0.01, rel=1e-4)
    assert image.colors.item() == pytest.approx(0.99)
    assert image.last_ids.item() == 0


def test_beyond_the_cap_the_gradient_is_zero():
    means2d, conics = torch.zeros(1, 2) + 0.5, torch.tensor([[1.0, 0, 1]])
    opacities = torch.tensor([0.9995], requires_grad=True)
    offsets, ids = torch.zeros(1, 1, 1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    reference.rasterize(means2d, conics, torch.ones(1, 1), opacities, 1, 1, 4, offsets, ids).colors.sum().backward()
    assert opacities.grad.item() == 0
