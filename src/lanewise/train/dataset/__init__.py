"""What training reads: photographs from a bounded cache, and the points and scales that it starts from."""

from lanewise.train.dataset.cache import Decoded, ImageCache, Photo
from lanewise.train.dataset.points import initial_points, neighbour_distances, scene_scale

__all__ = ["Decoded", "ImageCache", "Photo", "initial_points", "neighbour_distances", "scene_scale"]
