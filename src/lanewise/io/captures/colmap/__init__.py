"""COLMAP sparse models: structures, reader (binary and text), writer (binary)."""

from lanewise.io.captures.colmap.binary import write_model
from lanewise.io.captures.colmap.locate import find_images, find_model, read_model
from lanewise.io.captures.colmap.model import CAMERA_MODELS, Camera, Image, Model, Points

__all__ = [
    "CAMERA_MODELS",
    "Camera",
    "Image",
    "Model",
    "Points",
    "find_images",
    "find_model",
    "read_model",
    "write_model",
]
