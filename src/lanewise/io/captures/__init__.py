"""Captures: photographs with their cameras, in the layouts of COLMAP, Nerfstudio and Blender."""

from lanewise.io.captures.capture import Capture, View
from lanewise.io.captures.check import check_images
from lanewise.io.captures.load import FORMATS, load_capture

__all__ = ["FORMATS", "Capture", "View", "check_images", "load_capture"]
