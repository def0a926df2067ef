import numpy as np
import pytest

from lanewise.demo.shapes import Box, Sphere, Torus, column, dot

SHAPES = [Sphere(0.7), Box((0.5, 0.3, 0.2)), Torus(0.6, 0.2)]


def rays(count: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """From a sphere of radius 3, past and through the shape at the origin; [3, count] each."""
    rng = np.random.default_rng(0)
    origin = rng.normal(size=(3, count))
    origin *= 3 / np.linalg.norm(origin, axis=0)
    direction = 0.8 * rng.uniform(-1, 1, size=(3, count)) - origin
    return origin.astype(np.float32), (direction / np.linalg.norm(direction, axis=0)).astype(np.float32)


def inside(shape: Sphere | Box | Torus, point: np.ndarray) -> np.ndarray:
    """Whether points [3, ...] are in the body, by its equation."""
    x, y, z = point
    if isinstance(shape, Sphere):
        return x * x + y * y + z * z < shape.radius**2
    if isinstance(shape, Box):
        return (np.abs(x) < shape.half[0]) & (np.abs(y) < shape.half[1]) & (np.abs(z) < shape.half[2])
    return (np.hypot(x, y) - shape.ring) ** 2 + z * z < shape.tube**2


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: type(shape).__name__)
def test_first_hit_agrees_with_a_march_through_the_body(shape):
    origin, direction = rays()
    t = shape.hit(origin, direction)
    steps = np.linspace(1.5, 4.5, 1501, dtype=np.float32)  # 2 mm apart
    marched = inside(shape, origin[:, :, None] + steps * direction[:, :, None])
    met = marched.any(axis=1)
    assert 0.1 < met.mean() < 0.9
    first = steps[marched.argmax(axis=1)]
    # A march misses a corner that is thinner than its step; a ray that grazes a torus may run out of steps.
    assert np.isfinite(t[met]).mean() > 0.997
    both = met & np.isfinite(t)
    assert np.quantile(np.abs(first - t)[both], 0.995) < 4e-3
    assert (np.isfinite(t) & ~met).mean() < 0.01


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: type(shape).__name__)
def test_normals_are_unit_and_point_out_of_the_body(shape):
    origin, direction = rays()
    t = shape.hit(origin, direction)
    hit = np.isfinite(t)
    point = (origin + np.where(hit, t, 0) * direction)[:, hit]
    normal = shape.normal(point)
    np.testing.assert_allclose(dot(normal, normal), 1, atol=1e-5)
    assert (dot(normal, direction[:, hit]) < 1e-2).all()
    assert not inside(shape, point + 5e-3 * normal).any()
    # Near an edge of a box, a step along the normal of one face may leave through the other.
    assert inside(shape, point - 5e-3 * normal).mean() > 0.97


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: type(shape).__name__)
def test_surface_stays_within_the_bound(shape):
    origin, direction = rays()
    t = shape.hit(origin, direction)
    hit = np.isfinite(t)
    point = (origin + np.where(hit, t, 0) * direction)[:, hit]
    assert np.linalg.norm(point, axis=0).max() <= shape.bound + 2e-3


def test_a_ray_that_leaves_the_surface_does_not_meet_it_again():
    sphere = Sphere(1.0)
    out = column((0, 0, 1))
    assert np.isinf(sphere.hit(out, out)).all()
    assert np.isfinite(sphere.hit(3 * out, -out)).all()
